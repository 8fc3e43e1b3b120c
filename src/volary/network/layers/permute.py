"""Axes in another order."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from volary.errors import SettingError
from volary.network.layers._base import LayerKind, Shape

if TYPE_CHECKING:
    from torch import nn


@dataclass(frozen=True, kw_only=True)
class PermuteLayer(LayerKind):
    """As torch's permute, within a sample."""

    order: tuple[int, ...]  # of the axes behind the batch, which are counted from 1: (2, 3, 1) puts channels last

    def check(self) -> None:
        if sorted(self.order) != list(range(1, len(self.order) + 1)):
            raise SettingError(f"order is {self.order}; accepted: 1 to the number of axes, each once, as (2, 3, 1)")

    def shapes(self, given: tuple[Shape, ...]) -> tuple[Shape, ...]:
        if len(self.order) != len(given[0]):
            raise SettingError(f"order has {len(self.order)} axes; accepted: {len(given[0])}")
        return (tuple(given[0][axis - 1] for axis in self.order),)

    def build(self, given: tuple[Shape, ...]) -> nn.Module:
        from volary.network.operations.shaping import Permute

        return Permute((0, *self.order))


LAYER = PermuteLayer
