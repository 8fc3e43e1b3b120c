"""Evenly distributed values whose variance goes by the layer's size (Glorot & Bengio 2010), as Caffe draws them."""

from __future__ import annotations

from dataclasses import dataclass
from math import sqrt
from typing import TYPE_CHECKING, Literal

from volary.network.fillers._base import Filler

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True, kw_only=True)
class XavierFiller(Filler):
    """Variance 1 / n; n is the inputs of one output (fan_in), the outputs of one input, or the mean of both."""

    by: Literal["fan_in", "fan_out", "average"] = "fan_in"  # what n is

    def fill(self, values: Tensor) -> None:
        from torch.nn import init

        from volary.network.operations.fans import fan

        bound = sqrt(3) * (1 / sqrt(fan(values, self.by)))
        init.uniform_(values, -bound, bound)


FILLER = XavierFiller
