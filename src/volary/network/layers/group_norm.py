"""Group normalization (Wu & He 2018, arXiv:1803.08494)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from volary.errors import SettingError
from volary.network.layers._base import LayerKind, Shape, axis_of
from volary.network.operations.windows import refuse_below

if TYPE_CHECKING:
    from torch import nn


@dataclass(frozen=True, kw_only=True)
class GroupNormLayer(LayerKind):
    """(channels, ...) to the same shape."""

    groups: int  # of channels, each with its own mean and variance
    eps: float = 1e-5  # added to the variance
    affine: bool = True  # whether each channel has a factor and a bias that are learnt

    def check(self) -> None:
        refuse_below("groups", self.groups, 1)

    def shapes(self, given: tuple[Shape, ...]) -> tuple[Shape, ...]:
        axis_of(1, given[0])
        if given[0][0] % self.groups:
            raise SettingError(f"has {given[0][0]} channels; accepted: a multiple of groups, {self.groups}")
        return (given[0],)

    def build(self, given: tuple[Shape, ...]) -> nn.Module:
        from torch import nn

        return nn.GroupNorm(self.groups, given[0][0], self.eps, self.affine)


LAYER = GroupNormLayer
