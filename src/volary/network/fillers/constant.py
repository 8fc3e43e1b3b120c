"""One value for all."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from volary.network.fillers._base import Filler

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True, kw_only=True)
class ConstantFiller(Filler):
    """Biases mostly begin as 0 or 0.1."""

    value: float = 0.0  # of each element

    def fill(self, values: Tensor) -> None:
        from torch.nn import init

        init.constant_(values, self.value)


FILLER = ConstantFiller
