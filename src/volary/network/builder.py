"""Networks written in Python, layer by layer: the same list that a session has."""

from __future__ import annotations

from typing import Any

from volary.network.zoo.layers import LayerNetwork


class Builder:
    """Collects layers; each is known by the name of the edge that it makes.

    inputs: names of the edges that the network is fed.
    """

    def __init__(self, *inputs: str) -> None:
        self.inputs = inputs or ("input",)
        self._layers: list[dict[str, Any]] = []
        self._counts: dict[str, int] = {}

    def add(self, kind: str, *inputs: str, **settings: Any) -> str:
        """Add a layer of this kind, and return the name of the edge that it makes.

        kind: as in a list; also a block of Volary's own, or "file.py:Class". inputs: edges that it reads; none: those
        of the layer before it. settings: of the kind, and `name`, `edges`, `phase`, `share`; `network` checks them. A
        kind that makes several edges has them as `name.0`, `name.1`, ...
        """
        name = settings.pop("name", None) or self._unused(kind)
        own: dict[str, Any] = {"name": name} | ({"inputs": list(inputs)} if inputs else {})
        self._layers.append({kind: own | settings})
        edges = settings.get("edges")
        return name if edges is None else edges if isinstance(edges, str) else str(edges[0])

    def network(self, *output: str) -> LayerNetwork:
        """The network that gives these edges (none: those of the last layer), for `Session(network=...)`.

        Raises SessionError with all that is wrong with it.
        """
        return LayerNetwork(layers=list(self._layers), inputs=self.inputs, output=output or None)

    def _unused(self, kind: str) -> str:
        word = kind.rpartition(":")[2].rpartition(".")[2].lower()  # of "file.py:Class" the class
        taken = {entry[known].get("name") for entry in self._layers for known in entry}
        while True:
            self._counts[word] = self._counts.get(word, 0) + 1
            if (name := f"{word}{self._counts[word]}") not in taken:
                return name
