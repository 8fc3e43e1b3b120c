"""Evenly distributed values in plus or minus 1 / sqrt(fan_in)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from volary.network.fillers._base import Filler

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True, kw_only=True)
class UniformByFanIn(Filler):
    """As torch's fully connected layers begin, drawn once more."""

    def fill(self, values: Tensor) -> None:
        from math import sqrt

        from torch.nn import init

        bound = 1 / sqrt(values[0].numel())
        init.uniform_(values, -bound, bound)


FILLER = UniformByFanIn
