"""The exchange beside compute: one thread carries chunks, one applies what was agreed, under backward and forward."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from volary.exchange._keeper import Keeper
from volary.exchange._line import Line, Parcel, Travelled

if TYPE_CHECKING:
    from torch import Tensor

    from volary.comm.routes._base import Memory, Route
    from volary.exchange._base import Use
    from volary.exchange._broadcasts import Broadcasts
    from volary.exchange._buckets import Gate


class Overlapped:
    """Chunks travel over `route` the moment they are whole; see `volary.exchange._base.Exchange`."""

    def __init__(self, route: Route, broadcasts: Broadcasts, reason: str, overlaps: bool) -> None:
        self.route, self.overlaps = reason, overlaps
        self._route, self._broadcasts = route, broadcasts

    @property
    def sent_bytes(self) -> int:
        """Since the start."""
        return self._route.sent_bytes + self._broadcasts.sent_bytes

    @property
    def received_bytes(self) -> int:
        """Since the start."""
        return self._route.received_bytes + self._broadcasts.received_bytes

    @property
    def memory(self) -> Sequence[Memory]:
        """Each buffer's, in their order."""
        return self._route.memory

    def start(self, use: Use) -> None:
        """Start the threads."""
        self._use = use
        self._keeper = Keeper(use.chunks, use.slots, use.apply, use.applied)
        parcels = [Parcel(chunk.bucket.index, chunk.start, chunk.end) for chunk in use.chunks]
        self._line = Line(self._route, [*parcels, use.votes], self._arrived, self._keeper.fail, use.first)
        self.reorder(range(len(parcels)))

    def broadcast(self, values: Tensor) -> None:
        """Give all ranks rank 0's values; one of the tasks before the first step."""
        self._broadcasts.send(values)

    def push(self, number: int) -> None:
        """Let it leave."""
        self._line.depart(number)

    def release(self) -> None:
        """Backward is over: parameters may change."""
        self._keeper.release()

    def wait_for(self, done: Callable[[], bool]) -> None:
        """Wait for something that arrives."""
        self._keeper.wait_for(done)

    def tell(self, change: Callable[[], None]) -> None:
        """Make a change that somebody may wait for."""
        self._keeper.tell(change)

    def pull(self, gate: Gate) -> None:
        """Wait until the parameter behind `gate` is what was agreed."""
        if gate.waits:
            self._keeper.wait_for(lambda: not gate.waits)

    def settle(self) -> None:
        """Wait for all of this step."""
        self._keeper.settle()

    def reorder(self, order: Sequence[int]) -> None:
        """The order of the chunks; the votes go before them or after."""
        votes = [len(self._use.chunks)]
        self._line.order = [*votes, *order] if self._use.votes_first else [*order, *votes]

    def close(self) -> None:
        """End both threads."""
        self._line.close()
        self._keeper.close()

    def _arrived(self, number: int, travelled: Travelled) -> None:
        if number == len(self._use.chunks):
            self._keeper.tell(self._use.heard)
            return
        chunk = self._use.chunks[number]
        if chunk.start == 0:
            chunk.bucket.arrived()
        self._use.travelled(chunk, travelled)  # first: once it counts as arrived, the next step may begin
        self._keeper.arrived(chunk)
