"""A vector for each symbol of a sequence."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

from volary.network.layers._base import Count, LayerKind, Shape, number
from volary.network.operations.windows import refuse_below
from volary.session.reading.choice import Choice

if TYPE_CHECKING:
    from torch import nn


@dataclass(frozen=True, kw_only=True)
class EmbeddingLayer(LayerKind):
    """(...) of whole numbers to (..., width)."""

    symbols: Count  # how many there are; classes: as many as the data has
    width: int  # values of a vector
    weight_filler: Annotated[Any, Choice("volary.network.fillers")] = "default"  # first values of the vectors

    def check(self) -> None:
        refuse_below("width", self.width, 1)
        if isinstance(self.symbols, int):
            refuse_below("symbols", self.symbols, 1)

    def shapes(self, given: tuple[Shape, ...]) -> tuple[Shape, ...]:
        return ((*given[0], self.width),)

    def build(self, given: tuple[Shape, ...]) -> nn.Module:
        from torch import nn

        return nn.Embedding(number(self.symbols), self.width)

    def fill(self, module: nn.Module) -> None:
        self.weight_filler.fill(module.weight)


LAYER = EmbeddingLayer
