"""Sums a step behind: what a step contributes travels under all of the next, and is applied at its end.

Double buffering as in CNTK's 1-bit SGD (Seide et al., Interspeech 2014, section 3.3). Each update is one step late.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import torch

from volary.comm.sums.route import Memory
from volary.exchange.gradients.factor_sums import FactorMemory

if TYPE_CHECKING:
    from torch import Tensor

    from volary.exchange._base import KeeperCallbacks, ReplicatedKeeper
    from volary.exchange.compression.residual import ResidualState
    from volary.exchange.gradients.bucket import Chunk, ParameterGate
    from volary.run.database.traffic import Traffic


class DelayedKeeper:
    """Keeps contributions until those of the step before are applied; see `volary.exchange._base.ReplicatedKeeper`."""

    behind = True
    gathered = None

    def __init__(self, keeper: ReplicatedKeeper) -> None:
        self._keeper, self.overlaps = keeper, keeper.overlaps
        self.route = f"{keeper.route}; a step behind"
        *buckets, box = keeper.memory
        self._inner = buckets
        self.memory: Sequence[Memory] = [*map(_beside, buckets), box]
        self._version = 0  # of what was released
        self._pending = False  # contributions travel that are not applied yet
        self._sends = True

    @property
    def traffic(self) -> tuple[Traffic, ...]:
        return self._keeper.traffic

    def start(self, use: KeeperCallbacks) -> None:
        assert use.apply is not None, "updates of all at once are not late"
        self._apply = use.apply
        self._chunks = use.chunks
        self._last = {chunk.parcel: chunk.index for chunk in use.chunks}  # of each parcel
        # contributions leave when backward is over, and that waits for the votes
        self._keeper.start(replace(use, apply=self._apply_and_send, votes_awaited=True))

    def broadcast(self, values: Tensor) -> None:
        self._keeper.broadcast(values)

    def push(self, chunk: int) -> None:
        """Do nothing: the chunk leaves when backward is over."""

    def vote(self) -> None:
        """Send the votes at once: they are not a step late."""
        self._keeper.vote()

    def release(self, at_least: int) -> None:
        """Backward is over: what came of the step before may change parameters, and makes place for this one's."""
        self._version = at_least
        if self._pending:
            self._keeper.release(at_least - 1)
            return
        self._pending = True
        for chunk in self._chunks:
            self._send(chunk)

    def wait_for(self, done: Callable[[], bool]) -> None:
        self._keeper.wait_for(done)

    def notify(self, change: Callable[[], None]) -> None:
        """Make a change that somebody may wait for."""
        self._keeper.notify(change)

    def pull(self, gate: ParameterGate) -> None:
        """Wait until the parameter behind `gate` is what was agreed a step before."""
        self._keeper.pull(gate)

    def settle(self) -> None:
        """Wait until what was released is applied, and this step's contributions are on their way."""
        self._keeper.settle()

    def drain(self) -> None:
        """Wait until everything is applied; the next step's contributions find nothing before them."""
        self._keeper.settle()
        if self._pending:
            self._sends, self._pending = False, False
            self._keeper.release(self._version)
            self._keeper.settle()
            self._sends = True

    def left_out(self, chunk: Chunk, *, all_of_it: bool) -> None:
        self._keeper.left_out(chunk, all_of_it=all_of_it)

    def reorder(self, order: Sequence[int]) -> None:
        self._keeper.reorder(order)

    def state(self, *, copied: bool = True) -> ResidualState:
        """The residuals of what has left, after `drain`."""
        return self._keeper.state(copied=copied)

    def restore(self, states: Sequence[ResidualState]) -> None:
        self._keeper.restore(states)

    def close(self) -> None:
        self._keeper.close()

    def _apply_and_send(self, chunk: Chunk) -> None:
        self._apply(chunk)
        if self._sends:
            self._send(chunk)

    def _send(self, chunk: Chunk) -> None:
        number, values = chunk.bucket.index, slice(chunk.start, chunk.end)
        if self.memory[number] is not self._inner[number]:
            self._inner[number].contribution[values].copy_(self.memory[number].contribution[values])
        if self._last[chunk.parcel] == chunk.index:
            self._keeper.push(chunk.index)


def _beside(memory: Memory) -> Memory:
    """Memory where backward may write while `memory` travels; factors are kept apart anyway."""
    if isinstance(memory, FactorMemory):
        return memory
    return Memory(torch.zeros_like(memory.contribution), memory.agreed)
