"""As torch's layer draws them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from volary.network.fillers._base import Filler

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True, kw_only=True)
class DefaultFiller(Filler):
    """The values stay as they were when the layer was made."""

    def fill(self, values: Tensor) -> None:
        pass


FILLER = DefaultFiller
