"""Batch normalization (Ioffe & Szegedy 2015, arXiv:1502.03167)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from volary.errors import SettingError
from volary.network.layers._base import LayerKind, Shape

if TYPE_CHECKING:
    from torch import nn


@dataclass(frozen=True, kw_only=True)
class BatchNormLayer(LayerKind):
    """(channels, ...) to the same shape."""

    eps: float = 1e-5  # added to the variance
    momentum: float = 0.1  # share of a batch in the running statistics
    affine: bool = True  # whether each channel has a factor and a bias that are learnt
    statistics: Literal["batch", "running"] = "batch"  # of training; evaluation goes by the running ones, always

    def check(self) -> None:
        if self.eps <= 0:
            raise SettingError(f"eps is {self.eps}; accepted: above 0")
        if not 0 <= self.momentum <= 1:
            raise SettingError(f"momentum is {self.momentum}; accepted: from 0 to 1")

    def shapes(self, given: tuple[Shape, ...]) -> tuple[Shape, ...]:
        if not 1 <= len(given[0]) <= 4:
            raise SettingError("takes (channels, ...) with up to 3 axes behind the channels")
        return (given[0],)

    def build(self, given: tuple[Shape, ...]) -> nn.Module:
        from torch import nn

        from volary.network.operations.frozen import FrozenNorm

        kinds = (nn.BatchNorm1d, nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d)
        made = kinds[len(given[0]) - 1](given[0][0], self.eps, self.momentum, self.affine)
        return made if self.statistics == "batch" else FrozenNorm(made)


LAYER = BatchNormLayer
