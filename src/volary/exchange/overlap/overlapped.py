"""Sums beside compute: one thread carries chunks, one applies what was agreed, under backward and forward."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from volary.exchange.overlap.comm_thread import CommThread, Parcel, ParcelTimes
from volary.exchange.overlap.update_thread import UpdateThread

if TYPE_CHECKING:
    from torch import Tensor

    from volary.comm.sums.route import BufferSums, Memory
    from volary.exchange._base import KeeperCallbacks
    from volary.exchange.compression.error_feedback import ErrorFeedback
    from volary.exchange.compression.residual import ResidualState
    from volary.exchange.gradients.bucket import Chunk, ParameterGate
    from volary.exchange.overlap.broadcasts import Broadcasts
    from volary.exchange.overlap.owned import OwnerCopies
    from volary.run.database.traffic import Traffic


class OverlappedKeeper:
    """Chunks travel over `route` the moment they are whole; see `volary.exchange._base.ReplicatedKeeper`.

    errors: the residuals of what is encoded on the way.
    counted: what went over the wire, by codec and route. copies: what follows updates, where each rank makes its part.
    gathered: parameters of which a rank gathers what it is about to use; None: it has all.
    """

    behind = False

    def __init__(
        self,
        route: BufferSums,
        broadcasts: Broadcasts,
        errors: ErrorFeedback,
        reason: str,
        overlaps: bool,
        counted: Callable[[], tuple[Traffic, ...]] = tuple,
        copies: OwnerCopies | None = None,
    ) -> None:
        self.route, self.overlaps, self._counted, self._copies = reason, overlaps, counted, copies
        self.gathered = copies.gathered if copies else None
        self._route, self._broadcasts, self._errors = route, broadcasts, errors
        self._started = False

    @property
    def traffic(self) -> tuple[Traffic, ...]:
        """Since the start, by codec and route."""
        return self._counted()

    @property
    def memory(self) -> Sequence[Memory]:
        return self._route.memory[: self._copies.first] if self._copies else self._route.memory

    def start(self, use: KeeperCallbacks) -> None:
        self._use, self._started = use, True
        apply = self._apply if self._copies else use.apply
        copies = self._copies if self.gathered is None else None
        if self.gathered is not None:
            self.gathered.follow(use.chunks)
        self._updates = UpdateThread(use.chunks, use.slots, apply, use.applied, copied=copies is not None)
        self._chunks: list[list[Chunk]] = []  # by parcel
        for chunk in use.chunks:
            if chunk.parcel == len(self._chunks):
                self._chunks.append([])
            self._chunks[chunk.parcel].append(chunk)
        parcels = [
            Parcel(first.bucket.index, first.start, last.end, spread=first.bucket.payload is not None)
            for first, last in ((chunks[0], chunks[-1]) for chunks in self._chunks)
        ]
        votes = [len(parcels)] if use.votes_awaited else []
        parcels.append(use.votes)
        if copies is not None:
            parcels += [Parcel(copies.first + one.bucket.index, one.start, one.end) for one in use.chunks]
        late = range(len(self._chunks) + 1, len(parcels))
        self._comm = CommThread(self._route, parcels, self._arrived, self._updates.fail, use.first, votes, late)
        place = {id(slot): number for number, slot in enumerate(use.slots)}
        # as the next forward uses them, whatever the order in which their sums travelled
        by_use = sorted(use.chunks, key=lambda chunk: min(place[id(slot)] for slot in chunk.slots))
        self._copied_last = [len(self._chunks) + 1 + chunk.index for chunk in by_use] if copies else []
        self.reorder(range(len(use.chunks)))

    def broadcast(self, values: Tensor) -> None:
        """Give all ranks rank 0's values; one of the tasks before the first step."""
        self._broadcasts.send(values)

    def push(self, chunk: int) -> None:
        self._comm.depart(self._use.chunks[chunk].parcel, self._copies.most_waiting if self._copies else None)

    def vote(self) -> None:
        self._comm.depart(len(self._chunks))

    def release(self, at_least: int) -> None:
        if self._copies is not None:
            self._left = self._copies.leave()
        if self.gathered is not None:
            self.gathered.next_version()
        self._updates.release(at_least)

    def wait_for(self, done: Callable[[], bool]) -> None:
        self._updates.wait_for(done)

    def notify(self, change: Callable[[], None]) -> None:
        """Make a change that somebody may wait for."""
        self._updates.notify(change)

    def pull(self, gate: ParameterGate) -> None:
        """Wait until the parameter behind `gate` is what was agreed."""
        unit = self.gathered.of(gate) if self.gathered else None
        if self.gathered is not None and unit is not None:
            self.gathered.pull(unit, self._updates.wait_for)
        elif gate.waits:
            self._updates.wait_for(lambda: not gate.waits)

    def settle(self) -> None:
        self._updates.settle()

    def drain(self) -> None:
        self.settle()

    def left_out(self, chunk: Chunk, *, all_of_it: bool) -> None:
        self._errors.left_out(chunk, all_of_it=all_of_it)

    def reorder(self, order: Sequence[int]) -> None:
        """The order of the chunks; what travels together goes when the first would. Votes go before them or after."""
        parcels = list(dict.fromkeys(self._use.chunks[number].parcel for number in order))
        votes = [len(self._chunks)]
        sums = [*votes, *parcels] if self._use.votes_first else [*parcels, *votes]
        self._comm.order = [*sums, *self._copied_last]

    def state(self, *, copied: bool = True) -> ResidualState:
        return self._errors.state(copied=copied)

    def restore(self, states: Sequence[ResidualState]) -> None:
        self._errors.restore(states)

    def close(self) -> None:
        """End all threads, if they were started."""
        if self._started:
            self._comm.close()
            self._updates.close()
            if self.gathered is not None:
                self.gathered.close()

    def _arrived(self, number: int, travelled: ParcelTimes) -> None:
        if number == len(self._chunks):
            self._updates.notify(self._use.voted)
            return
        if number > len(self._chunks):
            self._updates.settled(self._use.chunks[number - len(self._chunks) - 1])
            return
        chunks = self._chunks[number]
        if chunks[0].start == 0:
            chunks[0].bucket.arrived()
        self._use.travelled(chunks[0], travelled)  # first: once it counts as arrived, the next step may begin
        for chunk in chunks:
            if self._copies is not None:
                self._copies.landed(chunk)
            self._updates.arrived(chunk)

    def _apply(self, chunk: Chunk) -> None:
        """Update this rank's part of a chunk; then copies of all parts go to all, or are gathered when needed."""
        assert self._copies is not None and self._use.apply is not None
        self._copies.all_have_left(self._left)
        self._use.apply(chunk)
        if self.gathered is not None:
            self.gathered.updated(chunk)
        else:
            self._comm.depart(len(self._chunks) + 1 + chunk.index)
