"""Requests to a run while it trains: received by rank 0, carried out by all ranks after the same step."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from volary.run.control.requests import WorkerRequest
from volary.sharding.groups import LEADER, leads

if TYPE_CHECKING:
    from volary.comm.groups.group import Bulletin

_TOPIC = "request"


class RunRequests:
    """posted_by_driver: what the driver has told this worker in this attempt, oldest first. Rank 0's word counts.

    ending: whether this worker was asked to end after its step. done: of this attempt, before the newest contribution.
    """

    def __init__(
        self, posted_by_driver: Callable[[], Sequence[Any]], bulletin: Bulletin, ending: Callable[[], bool]
    ) -> None:
        self._posted_by_driver, self._bulletin, self.ending = posted_by_driver, bulletin, ending
        self._posted = self._done = 0
        self._skipped = self.done = 0

    def skip(self, count: int) -> None:
        """Leave out the first `count`: a group before, of this attempt, has done them."""
        self._skipped = self.done = count

    def begin(self) -> None:
        """A contribution begins, and all that was due after the one before is done."""
        self.done = self._skipped + self._done

    def posted(self) -> int:
        """How many requests all ranks can read; for rank 0's vote, so that they do so after the same step."""
        if leads(self._bulletin.rank):
            for request in self._posted_by_driver()[self._skipped + self._posted :]:
                self._posted += 1
                self._bulletin.post(f"{_TOPIC} {self._posted}", request)
        return self._posted

    def due(self, agreed: int) -> Iterator[WorkerRequest]:
        """Yield the requests up to number `agreed` that are not done yet. A collective call."""
        while self._done < agreed:
            self._done += 1
            yield msgspec.convert(self._bulletin.read(f"{_TOPIC} {self._done}", LEADER), WorkerRequest)
