"""A run of values of a named parameter: whoever cuts, sums, keeps, updates or saves some of one names them so."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable


@dataclass(frozen=True, slots=True)
class Range:
    """Values `start` to `end`, in the order in memory, of the parameter or buffer `name`."""

    name: str
    start: int
    end: int

    @property
    def size(self) -> int:
        """The number of values."""
        return self.end - self.start


def are_all_once(spans: Iterable[tuple[int, int]], start: int, end: int) -> bool:
    """Whether spans, (first, behind the last), in any order, are all from `start` to `end`, and each of it once."""
    for low, high in sorted(span for span in spans if span[0] < span[1]):
        if low != start:
            return False
        start = high
    return start == end
