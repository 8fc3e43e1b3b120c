"""The protocol of fillers: draws a parameter's first values from torch's generator."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING

from volary.session.reading.settle import settle

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True, kw_only=True)
class Filler(ABC):
    """Fills a parameter; a frozen dataclass whose fields are read without torch."""

    def __post_init__(self) -> None:
        settle(self)

    @abstractmethod
    def fill(self, values: Tensor) -> None:
        """Overwrite `values` (...), of a weight (outputs, inputs, ...) or a bias (outputs,)."""
