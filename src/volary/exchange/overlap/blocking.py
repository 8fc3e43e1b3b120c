"""Sums in one go, inside one machine: all chunks are summed when the step wants them.

A meeting of all ranks costs more than adding a small bucket, and the cores that would add meanwhile are those that
compute: nothing is gained by adding earlier.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from volary.comm.groups.blocking import by_torch
from volary.comm.sums.route import Memory
from volary.exchange.overlap.comm_thread import ParcelTimes

if TYPE_CHECKING:
    from torch import Tensor

    from volary.comm.groups.group import Group
    from volary.comm.sums.segments import SharedSum
    from volary.exchange._base import KeeperCallbacks
    from volary.exchange.compression.error_feedback import ErrorFeedback
    from volary.exchange.compression.residual import ResidualState
    from volary.exchange.gradients.bucket import Chunk, ParameterGate
    from volary.run.database.traffic import Traffic


class BlockingKeeper:
    """Sums in the memory that all ranks share; see `volary.exchange._base.ReplicatedKeeper`."""

    overlaps = behind = False
    gathered = None
    sent_bytes = received_bytes = 0  # nothing goes over a wire
    traffic: tuple[Traffic, ...] = ()

    def __init__(self, shared: SharedSum, group: Group, errors: ErrorFeedback, reason: str) -> None:
        self.route = reason
        self._sum, self._group = shared, group
        self._errors = errors  # of parameters that were encoded before
        self.memory = [Memory(shared.mine(index), board.agreed) for index, board in enumerate(shared.boards)]
        self._ready_s: dict[int, float] = {}
        self._voted = False

    def start(self, use: KeeperCallbacks) -> None:
        """Do what is to be done first."""
        self._use = use
        for task in use.first:
            task()

    def broadcast(self, values: Tensor) -> None:
        by_torch(values, self._group)

    def push(self, chunk: int) -> None:
        """Note when the chunk was ready: all can read it where it is."""
        self._ready_s[chunk] = time.perf_counter()

    def vote(self) -> None:
        self._voted = True

    def release(self, at_least: int) -> None:
        """Sum everything, once all was pushed. Raises PeerLost."""
        assert self._voted and len(self._ready_s) == len(self._use.chunks), "released before all were pushed"
        sent_s = time.perf_counter()
        self._sum.sum_up()
        received_s = time.perf_counter()
        for chunk in self._use.chunks:
            if chunk.start == 0:
                chunk.bucket.arrived()
            self._use.travelled(chunk, ParcelTimes(self._ready_s[chunk.index], sent_s, received_s))
        self._ready_s.clear()
        self._voted = False
        self._use.voted()

    def wait_for(self, done: Callable[[], bool]) -> None:
        assert done(), "what was waited for did not come with the step"

    def notify(self, change: Callable[[], None]) -> None:
        change()

    def pull(self, gate: ParameterGate) -> None:
        pass

    def settle(self) -> None:
        pass

    def drain(self) -> None:
        pass

    def left_out(self, chunk: Chunk, *, all_of_it: bool) -> None:
        """Do nothing: nothing is encoded here, so frames carried nothing."""

    def reorder(self, order: Sequence[int]) -> None:
        """Do nothing: all chunks are summed at once."""

    def state(self, *, copied: bool = True) -> ResidualState:
        return self._errors.state(copied=copied)

    def restore(self, states: Sequence[ResidualState]) -> None:
        self._errors.restore(states)

    def close(self) -> None:
        pass
