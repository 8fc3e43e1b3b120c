"""No average is kept."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar


@dataclass(frozen=True)
class NoAverage:
    """The weights that are trained are all there are."""

    evaluate: ClassVar[bool] = False

    def share(self, count: int, newest: int, done: int, steps_per_epoch: int) -> float | None:
        return None


AVERAGE = NoAverage
