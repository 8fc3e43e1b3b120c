"""Normally distributed values for layers with ReLU (He et al. 2015, arXiv:1502.01852); Caffe calls it msra."""

from __future__ import annotations

from dataclasses import dataclass
from math import sqrt
from typing import TYPE_CHECKING, Literal

from volary.network.fillers._base import Filler

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True, kw_only=True)
class HeFiller(Filler):
    """Variance 2 / n; n is the inputs of one output (fan_in), the outputs of one input, or the mean of both."""

    by: Literal["fan_in", "fan_out", "average"] = "fan_in"  # what n is

    def fill(self, values: Tensor) -> None:
        from torch.nn import init

        from volary.network.operations.fans import fan

        init.normal_(values, 0, sqrt(2) / sqrt(fan(values, self.by)))


FILLER = HeFiller
