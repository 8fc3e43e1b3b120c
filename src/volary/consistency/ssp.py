"""Stale synchronous parallel (Ho et al., NIPS 2013): a worker may run ahead of the others, but not far."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from volary.consistency._base import Consistency
from volary.consistency.closing.bounded import BoundedCloser
from volary.consistency.closing.with_all import SynchronousCloser
from volary.errors import SettingError

if TYPE_CHECKING:
    from volary.server.roster.closing import Closer


@dataclass(frozen=True, kw_only=True)
class Ssp(Consistency):
    """A reader sees all updates that are older than `staleness` steps, and waits only for those."""

    staleness: int = 3  # steps by which the fastest worker may lead the slowest; 0 equals bsp
    needs_server = True
    elastic = True

    def __post_init__(self) -> None:
        if self.staleness < 0:
            raise SettingError(f"staleness is {self.staleness}; accepted: a whole number of steps, 0 or more")

    @property
    def steals(self) -> bool:
        """Not without staleness, where all keep step and nobody has time to spare."""
        return self.staleness > 0

    @property
    def asks_ahead(self) -> bool:
        """Not without staleness, where the next read is of an update that is not made yet while backward runs."""
        return self.staleness > 0

    @property
    def has_common_step(self) -> bool:
        """Only without staleness, where a step's contributions are one update; else each is one of its own."""
        return self.staleness == 0

    def closer(self, workers: int, first: int = 0, samples: int = 0) -> Closer:
        """Each contribution is an update once it is held; with no staleness a step's are one, once all are held."""
        return BoundedCloser(first, self.staleness) if self.staleness else SynchronousCloser(first, early=False)


CONSISTENCY = Ssp
