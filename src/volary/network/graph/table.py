"""The layers of a graph's module as rows: what each reads and gives, with shapes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from volary.network.graph.form import PHASES

if TYPE_CHECKING:
    from volary.network.graph.module import GraphModule
    from volary.network.layers._base import Shape


@dataclass(frozen=True)
class LayerRow:
    """One layer. kind: its file's name. inputs, gives: shapes by edge, without the batch. parameters: their values."""

    name: str
    kind: str
    inputs: dict[str, Shape]
    gives: dict[str, Shape]
    parameters: int

    def __str__(self) -> str:
        given = ", ".join(f"{name} {shape}" for name, shape in self.inputs.items())
        made = ", ".join(str(shape) for shape in self.gives.values())
        return f"{self.kind}, {given} -> {made}" + (f", {self.parameters:,} parameters" if self.parameters else "")


def table(module: GraphModule) -> list[LayerRow]:
    """All layers of all phases, in the order in which they run."""
    found: dict[str, LayerRow] = {}
    for phase in PHASES:
        shapes = module.shapes[phase]
        for wired, path in module.layers(phase):
            kind = type(wired.layer.kind).__module__.rpartition(".")[2]
            inputs = {edge[0]: shapes[edge] for edge in wired.reads}
            gives = {edge[0]: shapes[edge] for edge in wired.makes}
            parameters = sum(one.numel() for one in module.get_submodule(path).parameters())
            found.setdefault(path, LayerRow(path, kind, inputs, gives, parameters))
    return list(found.values())
