"""A fully connected layer."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, Annotated, Any

from volary.network.layers._base import Count, LayerKind, Shape, axis_of, number
from volary.network.operations.windows import refuse_below
from volary.session.reading.choice import Choice

if TYPE_CHECKING:
    from torch import Tensor, nn


@dataclass(frozen=True, kw_only=True)
class LinearLayer(LayerKind):
    """All values from `axis` on to (`outputs`,); the axes before it stay. The weight is (outputs, inputs)."""

    outputs: Count  # values that it gives; classes: as many as the data has classes
    axis: int = 1  # first axis whose values are inputs; -1: the last alone, as for each position of a sequence
    bias: bool = True  # whether a bias is added
    weight_filler: Annotated[Any, Choice("volary.network.fillers")] = "default"  # first values of the weight
    bias_filler: Annotated[Any, Choice("volary.network.fillers")] = "default"  # first values of the bias

    def check(self) -> None:
        if isinstance(self.outputs, int):
            refuse_below("outputs", self.outputs, 1)

    def shapes(self, given: tuple[Shape, ...]) -> tuple[Shape, ...]:
        return ((*given[0][: axis_of(self.axis, given[0])], number(self.outputs)),)

    def build(self, given: tuple[Shape, ...]) -> nn.Module:
        from torch import nn

        return nn.Linear(prod(given[0][axis_of(self.axis, given[0]) :]), number(self.outputs), bias=self.bias)

    def prepared(self, *edges: Tensor) -> tuple[Tensor, ...]:
        return (edges[0].flatten(self.axis),)

    def fill(self, module: nn.Module) -> None:
        self.weight_filler.fill(module.weight)
        if self.bias:
            self.bias_filler.fill(module.bias)


LAYER = LinearLayer
