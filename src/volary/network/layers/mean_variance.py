"""Mean 0 and variance 1 of each sample's values, by channel or of all; nothing is learnt, and nothing of a batch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from volary.errors import SettingError
from volary.network.layers._base import LayerKind, Shape

if TYPE_CHECKING:
    from torch import nn


@dataclass(frozen=True, kw_only=True)
class MeanVarianceLayer(LayerKind):
    """(x - mean) / (deviation + eps), as Caffe's MVN layer has it; the shape stays."""

    across: bool = False  # over all channels together; else each channel by itself
    variance: bool = True  # divide by the deviation; else the mean alone is subtracted
    eps: float = 1e-9  # what is added to the deviation

    def check(self) -> None:
        if self.eps < 0:
            raise SettingError(f"eps is {self.eps:g}; accepted: from 0")

    def shapes(self, given: tuple[Shape, ...]) -> tuple[Shape, ...]:
        if len(given[0]) < 2 and not self.across:
            raise SettingError("has one value of each channel; accepted: across=true, or (channels, ...)")
        return (given[0],)

    def build(self, given: tuple[Shape, ...]) -> nn.Module:
        from volary.network.operations.scaling import MeanVariance

        return MeanVariance(1 if self.across else 2, self.eps if self.variance else None)


LAYER = MeanVarianceLayer
