"""Portions of a batch for whoever is free (Sandblaster: Dean et al., NIPS 2012): nobody waits for the slowest's share.

An update is of a whole batch, as with bsp: each sample counts once, whoever computed it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from volary.consistency._base import Consistency
from volary.consistency.closing.alone import ImmediateCloser
from volary.session.checks import WHOLE, require

if TYPE_CHECKING:
    from volary.server.roster.closing import Closer

PORTIONS_EACH = 4  # of a worker, if nobody says how many there are


@dataclass(frozen=True, kw_only=True)
class PortionsOfBatch(Consistency):
    """Whoever is free takes the next portion of a batch, which is an update once all of it is in."""

    count: int | None = None  # portions that a batch is cut in (default: 4 for each worker that the run begins with)
    copies: bool = True  # the slowest portions of a batch are computed by idle workers, too: the first answer counts
    needs_server = True
    elastic = True
    steals = True
    drops = True
    whole_batches = True
    in_turn = True

    def __post_init__(self) -> None:
        require(self.count is None or self.count >= 1, "count", self.count, WHOLE)

    def pieces(self, workers: int) -> int:
        """In how many portions a batch is cut."""
        return self.count or PORTIONS_EACH * workers

    def closer(self, workers: int, first: int = 0, samples: int = 0) -> Closer:
        """Each contribution is complete once it is held; the roster gathers them until a batch is whole."""
        return ImmediateCloser(first)


CONSISTENCY = PortionsOfBatch
