"""The protocol of losses: a file of losses/ defines a settings class that builds a criterion."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

from volary.network.criterion import Criterion


@dataclass(frozen=True, kw_only=True)
class Loss(ABC):
    """Settings of a loss; a frozen dataclass whose fields `volary check` reads without torch."""

    @abstractmethod
    def build(self) -> Criterion:
        """The criterion that computes the loss and what is measured beside it."""
