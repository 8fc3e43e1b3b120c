"""Evenly distributed values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from volary.network.fillers._base import Filler

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True, kw_only=True)
class UniformFiller(Filler):
    """All values between two bounds are as likely."""

    low: float = 0.0  # lower bound
    high: float = 1.0  # upper bound

    def fill(self, values: Tensor) -> None:
        from torch.nn import init

        init.uniform_(values, self.low, self.high)


FILLER = UniformFiller
