"""A vector that is learnt for each position of a sequence, and added to it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

from volary.errors import SettingError
from volary.network.layers._base import LayerKind, Shape
from volary.session.reading.choice import Choice

if TYPE_CHECKING:
    from torch import nn


@dataclass(frozen=True, kw_only=True)
class PositionsLayer(LayerKind):
    """(time, width) to the same shape."""

    most_positions: int | None = None  # the longest sequence; null: as long as the data's are
    weight_filler: Annotated[Any, Choice("volary.network.fillers")] = "default"  # first values of the vectors

    def shapes(self, given: tuple[Shape, ...]) -> tuple[Shape, ...]:
        if len(given[0]) != 2:
            raise SettingError("takes sequences (time, width)")
        if self.most_positions is not None and given[0][0] > self.most_positions:
            raise SettingError(f"most_positions is {self.most_positions}, and sequences have {given[0][0]}")
        return (given[0],)

    def build(self, given: tuple[Shape, ...]) -> nn.Module:
        from volary.network.operations.sequences import Positions

        return Positions(self.most_positions or given[0][0], given[0][1])

    def fill(self, module: nn.Module) -> None:
        self.weight_filler.fill(module.weight)


LAYER = PositionsLayer
