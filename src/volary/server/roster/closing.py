"""The protocol of closers: at the roster, a consistency model decides which contributions make an update, and when."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from volary.server.protocol.updates import Contribution


@dataclass(frozen=True)
class DueUpdate:
    """An update that is due. contributions: whose sum it is, in the workers' order.

    dropped: those that came too late and will be in none; their samples come again. left_out: those that have nothing
    to add (no samples, or a loss that is not finite); their samples count as learnt from. whole: it stands for a whole
    batch, however many samples came.
    """

    contributions: tuple[Contribution, ...]
    dropped: tuple[Contribution, ...] = ()
    left_out: tuple[Contribution, ...] = ()
    whole: bool = True


class Closer(Protocol):
    """A plain state machine over what workers have computed and pushed; now: seconds of a monotonic clock.

    Each method returns the updates that have become due, in order. A contribution without samples (an empty portion) is
    told by `done` like any other, with 0 samples, and is in no update. Nothing more is told of a contribution that a
    step has named.
    """

    def joined(self, worker: int, now: float) -> None:
        """A worker takes part; from its next clock on it counts. It may have been here before."""
        ...

    def left(self, worker: int, now: float) -> Sequence[DueUpdate]:
        """A worker has gone, or has nothing to do. What is not `done` of it will never be, and is forgotten."""
        ...

    def next_clock(self, worker: int, now: float) -> int | None:
        """Take the clock of the worker's next contribution; None if it has to wait (ask again after any other call)."""
        ...

    @property
    def held_by(self) -> int | None:
        """While this stays as it is, whoever got no clock from `next_clock` gets none; None: ask after any call."""
        ...

    def oldest(self, clock: int) -> int:
        """The least update that parameters must hold which a worker reads at this clock, the last that it was given."""
        ...

    def computed(self, contribution: Contribution, samples: int, finite: bool, now: float) -> Sequence[DueUpdate]:
        """Note that its forward is over, at most once; a contribution that is not finite must be in no update."""
        ...

    def done(self, contribution: Contribution, samples: int, now: float) -> Sequence[DueUpdate]:
        """Note that all replicas of all its slices hold the contribution."""
        ...

    def tick(self, now: float) -> Sequence[DueUpdate]:
        """The updates that are due because time has passed: `now` in seconds of a monotonic clock."""
        ...


class ConsistencyModel(Protocol):
    """The part of a consistency model that the roster needs; `volary.consistency._base.Consistency` explains it."""

    @property
    def elastic(self) -> bool:
        """Whether workers may leave and join."""
        ...

    @property
    def steals(self) -> bool:
        """A worker without work takes a portion that another has not begun."""
        ...

    @property
    def epoch_share(self) -> float | None:
        """The share of workers that ends an epoch; None: there are no own parts."""
        ...

    @property
    def copies(self) -> bool:
        """Portions that take unusually long are handed out twice, if a batch is cut in `pieces`."""
        ...

    def pieces(self, workers: int) -> int | None:
        """In how many portions a batch is cut, which whoever is free takes; None: each worker has one of each batch."""
        ...

    def steps(self, step_s: float = 0.0, begun: int = 0) -> int:
        """Portions that a worker pushes as one contribution. step_s: seconds that one takes; 0: nobody knows yet.

        begun: those that it began before, from the beginning of the run.
        """
        ...

    def closer(self, workers: int, first: int = 0, samples: int = 0) -> Closer:
        """Decides for a run of so many workers."""
        ...
