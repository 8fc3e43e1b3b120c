"""A network that is written as a list of layers: `network: {layers: [...]}`."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

from volary.errors import SettingError
from volary.network.graph.form import PHASES, Graph
from volary.network.graph.wiring import wire
from volary.network.layers import ROOM
from volary.network.written.blocks import read_blocks
from volary.network.written.custom import CustomLayer
from volary.network.written.entry import absolute
from volary.network.written.expansion import REPEAT, Expansion
from volary.network.zoo._base import Network
from volary.session.reading.node import Node
from volary.session.reading.problems import Problem, Problems, SessionError

if TYPE_CHECKING:
    from torch import nn

    from volary.session.values.reference import UserObject


@dataclass(frozen=True, kw_only=True)
class LayerNetwork(Network):
    """Layers, blocks and repeats, one after another or connected by names."""

    needs_classes: ClassVar[bool] = False

    layers: Annotated[Any, absolute]  # the list, from the input to the output
    blocks: Annotated[Any, absolute] = None  # lists of layers that are used by name
    inputs: tuple[str, ...] = ("input",)  # names of the edges that the network is fed
    output: str | tuple[str, ...] | None = None  # edges that it gives; null: those of the last layer

    def check(self) -> None:
        """Refuse a list that is no network. Raises SessionError with all that is wrong with it."""
        problems = Problems()
        if not isinstance(self.layers, list | tuple) or not self.layers:
            raise SessionError([Problem("", "layers", "accepted: a list with a layer or more")])
        blocks = read_blocks(self.blocks or {}, [*ROOM.names(), *ROOM.aliases, REPEAT], problems)
        given = (self.output,) if isinstance(self.output, str) else self.output or ()
        graph = Expansion(blocks, problems).graph(self.layers, tuple(self.inputs), tuple(given))
        problems.raise_if_any()
        for phase in PHASES:
            try:
                wire(graph, phase)
            except SessionError as error:
                for each in error.problems:
                    problems.add("", each.place or "output", f"{each.path}: {each.sentence}")
        problems.raise_if_any()
        object.__setattr__(self, "_graph", graph)

    @property
    def graph(self) -> Graph:
        """The graph that the list describes: named layers and edges."""
        graph: Graph = vars(self)["_graph"]
        return graph

    @property
    def references(self) -> tuple[UserObject, ...]:
        """The user's classes that the list names."""
        kinds = (layer.kind for layer in self.graph.layers)
        return tuple(kind.user_object for kind in kinds if isinstance(kind, CustomLayer))

    def located(self, written: Node) -> None:
        """Learn where the network's settings are written, for messages about shapes."""
        found = self.graph
        layers = (replace(layer, place=written.below(layer.place).place) for layer in found.layers)
        object.__setattr__(self, "_graph", replace(found, layers=tuple(layers)))

    def build(self, input_shape: tuple[int, ...], classes: int) -> nn.Module:
        """Inputs of any shape that the layers take. Raises SessionError, by the layer, if they do not."""
        from volary.network.graph.module import GraphModule

        if len(self.inputs) != 1:
            raise SettingError(f"inputs are {', '.join(self.inputs)}; accepted: one, as the data has one")
        graph = self.graph.with_values(classes=classes)
        return GraphModule(graph, {self.inputs[0]: input_shape})


NETWORK = LayerNetwork
