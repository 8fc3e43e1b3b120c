"""Snapshots of a run, each as of one update: their evaluation, and how they become checkpoints."""

from __future__ import annotations

import math
from collections import deque
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any, Literal

from volary.comm.control.errors import BadMessage
from volary.server.protocol.from_members import Evaluated
from volary.server.protocol.to_members import EvaluatePiece

STORE_S = 300.0  # that a store may take for one stage of a save: it is asked seven times, and may be slow each time


@dataclass
class Measuring:
    """The evaluation of a snapshot, in pieces. free: pieces that nobody has; at: who has which; asked: who is to say
    what the totals mean; lost: by piece, samples that could not be read.

    writes: a text is written with the first piece. evaluates: False: with no sample, for the text alone.
    """

    bounds: list[tuple[int, int]]
    writes: bool = False
    evaluates: bool = True
    free: deque[int] = field(init=False)
    at: dict[int, int] = field(default_factory=dict)
    totals: dict[int, list[float]] = field(default_factory=dict)
    asked: int | None = None
    lost: dict[int, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.free = deque(range(len(self.bounds)))

    @property
    def whole(self) -> bool:
        """Whether workers have measured all pieces of the validation data."""
        return len(self.totals) == len(self.bounds)

    def give(self, snapshot: int, step: int, worker: int) -> EvaluatePiece | None:
        """A piece for the worker, if one is free. step: that the snapshot is of."""
        if not self.free:
            return None
        piece = self.free.popleft()
        self.at[piece] = worker
        return EvaluatePiece(snapshot, piece, *self.bounds[piece], step, writes=self.writes and not piece)

    def take(self, worker: int, report: Evaluated) -> None:
        """A piece is measured. Raises BadMessage if it is not the worker's, or not like the others."""
        if self.at.get(report.piece) != worker:
            raise BadMessage(
                f"rank {worker} measured piece {report.piece} of snapshot {report.snapshot}, which it was not given"
            )
        if any(len(known) != len(report.totals) for known in self.totals.values()):
            raise BadMessage(f"rank {worker} measured {len(report.totals)} totals, and others another number")
        del self.at[report.piece]
        self.totals[report.piece] = report.totals
        self.lost[report.piece] = report.lost

    def summed(self) -> list[float]:
        """The totals of all pieces, in an order that does not depend on who was first."""
        rows = [self.totals[piece] for piece in sorted(self.totals)]
        return [math.fsum(column) for column in zip(*rows, strict=True)]

    def left(self, worker: int) -> None:
        """A worker has gone: what it had is free again."""
        for piece in [piece for piece, other in self.at.items() if other == worker]:
            del self.at[piece]
            self.free.append(piece)
        if self.asked == worker:
            self.asked = None

    @classmethod
    def of(cls, pieces: list[tuple[int, int]], *, writes: bool) -> Measuring | None:
        """The measuring of a snapshot, given the pieces of its evaluation, if any; None: nothing is to be measured."""
        if not pieces and not writes:
            return None
        return cls(pieces or [(0, 0)], writes, evaluates=bool(pieces))


@dataclass
class Snapshot:
    """The state as of update `number`. state: of the roster then. save: it is to become a checkpoint.

    owners: workers whose residuals belong to it. kept: servers that hold it. metric: of its evaluation, if that was the
    best so far. last: nothing is saved after it. tries: how often it was saved in vain. asking: workers whose own loops
    wait until it is saved.
    """

    name: int
    number: int
    step: int
    state: dict[str, Any]
    measuring: Measuring | None
    save: bool
    owners: list[int] = field(default_factory=list)
    asking: list[int] = field(default_factory=list)
    kept: set[int] = field(default_factory=set)
    metric: float | None = None
    last: bool = False
    tries: int = 0


@dataclass
class Saving:
    """A checkpoint in the making. at_store: what the store is asked for; None: members write what is theirs.

    stage: what comes to be: the draft is, all that belongs into it, or the checkpoint. waiting: by server, shards that
    it is yet to write, as it was asked. workers: that are yet to write what is theirs. problem: why nothing will come
    of it. asked_at: since when the store is known to be asked.
    """

    snapshot: Snapshot
    at_store: Future[None] | None
    stage: Literal["drafted", "written", "committed"] = "drafted"
    waiting: dict[int, list[list[int]]] = field(default_factory=dict)
    workers: set[int] = field(default_factory=set)
    files: dict[str, str] = field(default_factory=dict)
    problem: str = ""
    asked_at: float | None = None

    @property
    def stage_is_over(self) -> bool:
        """Whether nobody is waited for."""
        return (self.at_store is None or self.at_store.done()) and not self.waiting and not self.workers

    def look(self, now: float) -> None:
        """Wait no longer for a store that takes too long; `now` in seconds of a monotonic clock."""
        if self.asked_at is None:
            self.asked_at = now
        elif now - self.asked_at > STORE_S:
            self.at_store = None
            self.problem = f"the store has not answered for {STORE_S:.0f} s"

    def take_answer(self) -> None:
        """Take the store's answer to what it was asked for."""
        if self.at_store is not None and isinstance(problem := self.at_store.exception(), OSError):
            self.problem = str(problem) or type(problem).__name__
        elif self.at_store is not None:
            self.at_store.result()
        self.at_store = self.asked_at = None


def cut_evenly(samples: int, pieces: int) -> list[tuple[int, int]]:
    """Bounds of even pieces of so many samples, none of them empty."""
    pieces = min(samples, pieces)
    return [(samples * n // pieces, samples * (n + 1) // pieces) for n in range(pieces)]
