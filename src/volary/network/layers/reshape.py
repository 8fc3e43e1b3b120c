"""The same values in another shape."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING

from volary.errors import SettingError
from volary.network.layers._base import LayerKind, Shape

if TYPE_CHECKING:
    from torch import nn


@dataclass(frozen=True, kw_only=True)
class ReshapeLayer(LayerKind):
    """The values of a sample stay in their order."""

    shape: tuple[int, ...]  # of one sample, without the batch; 0: as it was in this place; -1: what is left

    def check(self) -> None:
        if any(size < -1 for size in self.shape) or self.shape.count(-1) > 1:
            raise SettingError(f"shape is {self.shape}; accepted: whole numbers from 0, and -1 once")

    def shapes(self, given: tuple[Shape, ...]) -> tuple[Shape, ...]:
        kept = [
            given[0][place] if size == 0 and place < len(given[0]) else size for place, size in enumerate(self.shape)
        ]
        values, known = prod(given[0]), prod(size for size in kept if size != -1)
        if known == 0 or values % known or (-1 not in kept and values != known):
            raise SettingError(f"shape is {self.shape}, which does not hold {values} values")
        return (tuple(values // known if size == -1 else size for size in kept),)

    def build(self, given: tuple[Shape, ...]) -> nn.Module:
        from volary.network.operations.shaping import Reshape

        return Reshape(self.shape)


LAYER = ReshapeLayer
