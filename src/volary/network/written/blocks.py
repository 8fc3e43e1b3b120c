"""Blocks: lists of layers that are defined once, with inputs, outputs and settings, and used by their names."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from volary.session.reading.problems import Problems, unknown

KEYS = ("settings", "inputs", "outputs", "layers")


@dataclass(frozen=True)
class WrittenBlock:
    """A block's definition.

    settings: names and defaults, None: it has to be given; `$name` in the layers stands for the value. inputs: names of
    the edges that it reads. outputs: edges that it gives; empty: those of its last layer. path: where the layers are in
    the network's settings; "": they are one of Volary's own.
    """

    layers: list[Any]
    settings: Mapping[str, Any]
    inputs: tuple[str, ...] = ("input",)
    outputs: tuple[str, ...] = ()
    path: str = ""

    def filled(self, given: Mapping[str, Any], path: str, problems: Problems) -> list[Any]:
        """The layers with values for `$names`. given: by a use of the block at `path`, whose mistakes are noted."""
        for name in given:
            if name not in self.settings:
                problems.add("", f"{path}.{name}", unknown(name, self.settings))
        values = {**self.settings, **given}
        for name, value in values.items():
            if value is None:
                problems.add("", f"{path}.{name}", "is missing; accepted: a value")
        found: list[Any] = _filled(self.layers, values, self.path or path, problems)
        return found


def _filled(written: Any, values: Mapping[str, Any], path: str, problems: Problems) -> Any:
    if isinstance(written, Mapping):
        return {key: _filled(value, values, f"{path}.{key}", problems) for key, value in written.items()}
    if isinstance(written, list | tuple):
        return [_filled(value, values, f"{path}.{place}", problems) for place, value in enumerate(written)]
    if isinstance(written, str) and written.startswith("$"):
        if written[1:] in values:
            return values[written[1:]]
        problems.add("", path, f"is {written!r}, which is no setting of the block; {unknown(written[1:], values)}")
    return written


def read_blocks(written: Any, kinds: list[str], problems: Problems) -> dict[str, WrittenBlock]:
    """The blocks of a network by name, Volary's own among them; kinds: names that no block may have."""
    found = dict(OWN_BLOCKS)
    if not isinstance(written, Mapping):
        problems.add("", "blocks", "accepted: blocks by name, each with its `layers`")
        return found
    for name, one in written.items():
        path = f"blocks.{name}"
        if name in kinds or name in OWN_BLOCKS:
            problems.add("", path, f"{name!r} is the name of a kind of layer; accepted: another name")
        elif not isinstance(one, Mapping) or not isinstance(one.get("layers"), list) or not one["layers"]:
            problems.add("", path, f"accepted: {{layers: [...]}}, and perhaps {', '.join(KEYS[:-1])}")
        else:
            found[name] = _block(one, path, problems)
    return found


def _block(one: Mapping[str, Any], path: str, problems: Problems) -> WrittenBlock:
    for key in one:
        if key not in KEYS:
            problems.add("", f"{path}.{key}", unknown(key, KEYS))
    settings, edges = one.get("settings") or {}, {}
    if not isinstance(settings, Mapping):
        problems.add("", f"{path}.settings", "accepted: names with their defaults, null for one that has to be given")
        settings = {}
    for key, default in (("inputs", ("input",)), ("outputs", ())):
        names = one.get(key, default)
        names = (names,) if isinstance(names, str) else names
        if not isinstance(names, list | tuple) or not all(isinstance(name, str) for name in names):
            problems.add("", f"{path}.{key}", "accepted: a list of names of edges")
            names = default
        edges[key] = tuple(names)
    return WrittenBlock(one["layers"], settings, edges["inputs"], edges["outputs"], f"{path}.layers")


_CONV = {"kernel": 3, "padding": 1, "bias": False, "weight_filler": {"name": "he", "by": "fan_out"}}
_LAST: list[Any] = [
    {
        "shortcut": {
            "channels": "$channels",
            "stride": "$stride",
            "inputs": "input",
            "weight_filler": _CONV["weight_filler"],
        }
    },
    {"sum": {"inputs": ["way", "shortcut1"]}},
    "relu",
]

OWN_BLOCKS: Mapping[str, WrittenBlock] = {
    "residual": WrittenBlock(
        [
            {"conv": {"channels": "$channels", "stride": "$stride"} | _CONV},
            "batch_norm",
            "relu",
            {"conv": {"channels": "$channels"} | _CONV},
            {"batch_norm": {"edges": "way"}},
            *_LAST,
        ],
        {"channels": None, "stride": 1},
    ),
    "bottleneck": WrittenBlock(
        [
            {"conv": {"channels": "$width"} | _CONV | {"kernel": 1, "padding": 0}},
            "batch_norm",
            "relu",
            {"conv": {"channels": "$width", "stride": "$stride"} | _CONV},
            "batch_norm",
            "relu",
            {"conv": {"channels": "$channels"} | _CONV | {"kernel": 1, "padding": 0}},
            {"batch_norm": {"edges": "way"}},
            *_LAST,
        ],
        {"width": None, "channels": None, "stride": 1},
    ),
}
