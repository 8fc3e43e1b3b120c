"""Normally distributed values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from volary.network.fillers._base import Filler

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True, kw_only=True)
class GaussianFiller(Filler):
    """As Krizhevsky et al. 2012 begin."""

    mean: float = 0.0  # of the distribution
    std: float = 0.01  # standard deviation

    def fill(self, values: Tensor) -> None:
        from torch.nn import init

        init.normal_(values, self.mean, self.std)


FILLER = GaussianFiller
