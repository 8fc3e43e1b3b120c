"""A run of values of a named parameter: whoever cuts, sums, keeps, updates or saves some of one names them so."""

from __future__ import annotations

from dataclasses import dataclass


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
