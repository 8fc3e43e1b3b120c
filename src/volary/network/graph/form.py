"""The form that networks have before they are modules: layers and edges by name, as plain data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Literal

from volary.errors import SettingError
from volary.session.reading.problems import Problem, SessionError

if TYPE_CHECKING:
    from volary.network.layers._base import LayerKind

Phase = Literal["train", "evaluate"]
PHASES: tuple[Phase, ...] = ("train", "evaluate")


@dataclass(frozen=True, kw_only=True)
class NamedLayer:
    """One layer of a graph.

    name: its path, parts separated by dots, under which the module has its parameters; two layers may have one name if
    each is of another phase, and then share their parameters. inputs, outputs: names of edges; an output with the name
    of an input is a new version of that edge (a layer "in place"). phase: when it runs; None: always. shares: some of
    its parameters to names; all parameters with one such name are one parameter. place: where it was written, for
    messages.
    """

    name: str
    kind: LayerKind
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    phase: Phase | None = None
    shares: Mapping[str, str] = field(default_factory=dict)
    place: str = field(default="", compare=False)

    def runs_in(self, phase: Phase) -> bool:
        """Whether the layer is part of the network in this phase."""
        return self.phase in (None, phase)


@dataclass(frozen=True, kw_only=True)
class Graph:
    """A network: its layers, in any order, the edges that it is fed, and those that it gives.

    aliases: other names of edges, as of a block for what its last layer makes.
    An output whose layers do not run in a phase is left out in that phase: so auxiliary answers are for training only.
    place: where it was written, for messages.
    """

    layers: tuple[NamedLayer, ...]
    inputs: tuple[str, ...] = ("input",)
    outputs: tuple[str, ...] = ()
    aliases: Mapping[str, str] = field(default_factory=dict)
    place: str = field(default="", compare=False)

    def with_values(self, **values: int) -> Graph:
        """The graph with numbers for the words in its layers' settings: `classes=10` for `outputs: classes`.

        Raises SessionError, with the layer, if one of them uses a word whose number is 0: nobody knows it.
        """
        return replace(self, layers=tuple(_with_values(layer, values) for layer in self.layers))


def _with_values(layer: NamedLayer, values: Mapping[str, int]) -> NamedLayer:
    try:
        return replace(layer, kind=layer.kind.with_values(values))
    except SettingError as error:
        raise SessionError([Problem(layer.place, f"layer {layer.name!r}", str(error))]) from None
