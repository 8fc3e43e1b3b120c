"""Sums over all workers, simulated: one worker runs at a time, and a seed says which, and what arrives when."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from random import Random
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor

from volary.comm.sums.route import BufferShape, Memory
from volary.exchange._base import KeeperCallbacks
from volary.exchange.overlap.comm_thread import ParcelTimes

AT_MOST_S = 60.0  # for a schedule, which takes some milliseconds


class Stuck(AssertionError):
    """Everybody waits, and nothing is under way."""


class Turns:
    """Threads that take turns: whenever one waits, what `random` draws happens next."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self.under_way: list[Callable[[], None]] = []  # whatever arrives, in any order
        self._waits: dict[int, Callable[[], bool]] = {}
        self._go: dict[int, threading.Semaphore] = {}
        self._failed: BaseException | None = None

    def play(self, programs: Sequence[Callable[[], None]]) -> None:
        """Run them all to their ends. Raises what one of them does, or Stuck."""
        self._go = {rank: threading.Semaphore(0) for rank in range(len(programs))}
        self._waits = dict.fromkeys(self._go, lambda: True)
        threads = [threading.Thread(target=self._run, args=(*one,), daemon=True) for one in enumerate(programs)]
        for thread in threads:
            thread.start()
        self._pass_on()
        for thread in threads:
            thread.join(AT_MOST_S)
            assert not thread.is_alive(), "a schedule takes a minute"
        if self._failed is not None:
            raise self._failed

    def wait(self, rank: int, until: Callable[[], bool] = lambda: True) -> None:
        """Let others have their turns, at least until this is so."""
        self._waits[rank] = until
        self._pass_on()
        self._take(rank)

    def _run(self, rank: int, program: Callable[[], None]) -> None:
        try:
            self._take(rank)
            program()
        except BaseException as error:
            self._failed = self._failed or error
        self._pass_on()

    def _take(self, rank: int) -> None:
        self._go[rank].acquire()
        if self._failed is not None:
            raise self._failed

    def _pass_on(self) -> None:
        """Let things arrive until the one who is drawn can go on."""
        while self._waits:
            ready = [*self._waits] if self._failed else [rank for rank, until in self._waits.items() if until()]
            drawn = self.random.randrange(len(ready) + len(self.under_way)) if ready or self.under_way else None
            if drawn is None:
                self._failed = Stuck(f"ranks {sorted(self._waits)} wait for ever")
            elif drawn < len(ready):
                del self._waits[ready[drawn]]
                self._go[ready[drawn]].release()
                return
            else:
                self.under_way.pop(drawn - len(ready))()


class Rank:
    """A group of `size` workers that take turns, as one of them has it, and what its keepers are made by.

    See `volary.comm.groups.group.Group`, its `Bulletin`, and `volary.exchange.overlap.comm_setup.CommSetup`. board:
    what all have posted. behind: sums are to travel under the next steps.
    """

    owned = None
    links = SimpleNamespace(topology=SimpleNamespace(within_bytes_per_s=None))

    def __init__(self, turns: Turns, rank: int, size: int, board: dict[Any, Any], behind: bool, part: str = "") -> None:
        self.turns, self.rank, self.size, self.board, self.behind, self.part = turns, rank, size, board, behind, part
        self.leads, self.bulletin = rank == 0, self
        self._counted = 0

    def within(self, part: str) -> Rank:
        return Rank(self.turns, self.rank, self.size, self.board, self.behind, f"{self.part}/{part}")

    def share(self, topic: str, value: Any) -> list[Any]:
        self._counted += 1
        posted = self.board.setdefault((self.part, topic, self._counted), {})
        posted[self.rank] = value
        self.turns.wait(self.rank, lambda: len(posted) == self.size)
        return [posted[rank] for rank in range(self.size)]

    def add_up(self, values: Tensor) -> None:
        """Make `values` the sum over all, in place."""
        values.copy_(torch.stack(self.share("sum", values.clone())).sum(0))

    def frees(self, representations: Mapping[str, Any]) -> bool:
        return False

    def bucket_mb(self, as_set: float, representations: Mapping[str, Any]) -> float:
        return as_set

    def build(
        self, group: Rank, plans: Sequence[Any], box: BufferShape, left_out: object, partners: Any = None
    ) -> Keeper:
        keepers = group.board.setdefault((group.part, "keepers", len(group.share("keeper", None))), {})
        keepers[group.rank] = made = Keeper(group, [*(plan.shape for plan in plans), box], partners)
        made.everybody = keepers
        group.share("built", None)
        return made


Piece = tuple[int, int, int]  # buffer, start, end


class Keeper:
    """See `volary.exchange._base.ReplicatedKeeper`: a sum is of what is in the buffers as it is made, some time after
    all have let it leave; then it comes to each worker, some time.
    """

    route, overlaps, gathered, traffic = "simulated", True, None, ()
    everybody: Mapping[int, Keeper]

    def __init__(self, group: Rank, shapes: Sequence[BufferShape], partners: Any) -> None:
        self._group, self._partners, self.behind = group, partners, False
        *buckets, box = shapes
        self.memory = [*map(_apart if partners else Memory.in_place, buckets), Memory.in_place(box)]
        self.left: dict[Piece, int] = {}  # how often
        self.came: dict[Piece, int] = {}
        self._calls: dict[Piece, Callable[[], None]] = {}

    def start(self, use: KeeperCallbacks) -> None:
        self._chunks = {one.index: (one.bucket.index, one.start, one.end) for one in use.chunks}
        now = ParcelTimes(0.0, 0.0, 0.0)
        self._calls = {self._chunks[one.index]: partial(use.travelled, one, now) for one in use.chunks}
        self._votes = use.votes.buffer, use.votes.start, use.votes.end
        self._calls[self._votes] = use.voted

    def broadcast(self, values: Tensor) -> None:
        values.copy_(self._group.share("broadcast", values.clone())[0])

    def push(self, chunk: int) -> None:
        self._leave(self._chunks[chunk])

    def vote(self) -> None:
        self._leave(self._votes)

    def release(self, at_least: int) -> None:
        return

    def wait_for(self, done: Callable[[], bool]) -> None:
        self._group.turns.wait(self._group.rank, done)

    def settle(self) -> None:
        self.wait_for(lambda: all(self.came.get(one, 0) == self.left.get(one, 0) for one in self._chunks.values()))

    def left_out(self, chunk: Any, *, all_of_it: bool) -> None:
        return

    def state(self, *, copied: bool = True) -> dict[str, Any]:
        return {}

    def restore(self, states: Sequence[Any]) -> None:
        return

    def close(self) -> None:
        return

    def _leave(self, piece: Piece) -> None:
        self.left[piece] = number = self.left.get(piece, 0) + 1
        if all(other.left.get(piece, 0) >= number for other in self.everybody.values()):
            self._group.turns.under_way.append(lambda: self._sum_up(piece))
        self._group.turns.wait(self._group.rank)

    def _sum_up(self, piece: Piece) -> None:
        given = {rank: one.values(piece).clone() for rank, one in self.everybody.items()}
        for rank, one in self.everybody.items():
            self._group.turns.under_way.append(partial(one.arrive, piece, one.made_of(piece, rank, given)))

    def values(self, piece: Piece) -> Tensor:
        buffer, start, end = piece
        return self.memory[buffer].contribution[start:end]

    def made_of(self, piece: Piece, rank: int, given: Mapping[int, Tensor]) -> Tensor:
        """The sum of all, or of parameters the mean with the rank's partners."""
        if self._partners is None or piece == self._votes:
            return torch.stack([*given.values()]).sum(0)
        return torch.stack([given[rank], *(given[other] for other in self._partners(rank))]).mean(0)

    def arrive(self, piece: Piece, sums: Tensor) -> None:
        buffer, start, end = piece
        self.memory[buffer].agreed[start:end] = sums
        self.came[piece] = self.came.get(piece, 0) + 1
        self._calls[piece]()


def _apart(shape: BufferShape) -> Memory:
    return Memory(*(torch.zeros(shape.numel, dtype=shape.dtype) for _ in range(2)))
