"""Closes a round with a quorum of the workers and those who come soon after it; who comes later is in the next."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from volary.server.protocol.updates import Contribution
from volary.server.roster.closing import DueUpdate

SEEN = 32  # rounds whose times the grace is a share of


@dataclass
class _Entry:
    """A contribution in no update. round: in which it has begun. useful: it has something to add, as far as known."""

    round: int
    done: bool = False
    useful: bool = True


class QuorumCloser:
    """Decoupled DiLoCo (Douillard et al. 2026, arXiv:2604.21428); a `volary.server.roster.closing.Closer`.

    A round closes once contributions of `quorum` workers are in and the grace is over, or nobody else can come: then
    with fewer, too. A worker that is in it begins the next round with its update. A worker that is not goes on as soon
    as it has finished, with the newest update there is, and what it has contributed is in the next round: nothing is
    dropped. first: the first clock of every worker, and the updates that there were before. grace: as a share of the
    time that a quorum takes, the median over the newest rounds.
    """

    def __init__(self, first: int, quorum: int, grace: float) -> None:
        self._quorum, self._grace = quorum, grace
        self._first = self._updates = first
        self._here: set[int] = set()
        self._next: dict[int, int] = {}
        self._entries: dict[Contribution, _Entry] = {}
        self._took_s: deque[float] = deque(maxlen=SEEN)
        self._began_at: float | None = None  # the round
        self._met_at: float | None = None  # the quorum of it
        self._changes = 0

    def joined(self, worker: int, now: float) -> None:
        """Let the worker be in the round that is open."""
        self._here.add(worker)

    def left(self, worker: int, now: float) -> Sequence[DueUpdate]:
        """Close what need not wait for the worker any more; what it has finished counts."""
        self._here.discard(worker)
        self._entries = {each: one for each, one in self._entries.items() if each.worker != worker or one.done}
        return self._due(now)

    def next_clock(self, worker: int, now: float) -> int | None:
        """The worker's next, unless it is in the round that is open."""
        if worker in self._busy:
            return None
        clock = self._next.get(worker, self._first)
        self._next[worker] = clock + 1
        self._entries[Contribution(worker, clock)] = _Entry(self._updates)
        if self._began_at is None:
            self._began_at = now
        return clock

    @property
    def held_by(self) -> int | None:
        """Counts what has been finished or closed: that alone lets a worker continue."""
        return self._changes

    def oldest(self, clock: int) -> int:
        """The newest update that there is."""
        return self._updates

    def computed(self, contribution: Contribution, samples: int, finite: bool, now: float) -> Sequence[DueUpdate]:
        self._entries[contribution].useful = finite
        return ()

    def done(self, contribution: Contribution, samples: int, now: float) -> Sequence[DueUpdate]:
        entry = self._entries[contribution]
        entry.done, entry.useful = True, entry.useful and samples > 0
        self._changes += 1
        return self._due(now)

    def tick(self, now: float) -> Sequence[DueUpdate]:
        """Close a round whose grace is over."""
        return self._due(now)

    @property
    def _busy(self) -> set[int]:
        """Workers with a contribution that is under way, or in the round in which it has begun."""
        return {each.worker for each, one in self._entries.items() if not one.done or one.round == self._updates}

    @property
    def _expected(self) -> bool:
        """Whether somebody who takes part is in the round with nothing yet, or only with what came late."""
        in_it = {each.worker for each, one in self._entries.items() if one.done and one.round == self._updates}
        return bool(self._here - in_it)

    def _due(self, now: float) -> Sequence[DueUpdate]:
        done = {each: self._entries[each] for each in sorted(self._entries) if self._entries[each].done}
        if not done or (
            self._expected and not self._is_over(len({each.worker for each in done if done[each].useful}), now)
        ):
            return ()
        self._entries = {each: one for each, one in self._entries.items() if not one.done}
        self._updates += 1
        self._changes += 1
        self._began_at, self._met_at = now if self._entries else None, None
        useful = tuple(each for each, one in done.items() if one.useful)
        return (DueUpdate(useful, left_out=tuple(each for each, one in done.items() if not one.useful)),)

    def _is_over(self, workers: int, now: float) -> bool:
        """Whether contributions of so many workers are a quorum, and whoever came soon after it is among them."""
        if workers < self._quorum:
            return False
        if self._met_at is None:
            assert self._began_at is not None
            self._met_at = now
            self._took_s.append(now - self._began_at)
        return now - self._met_at >= self._grace * median(self._took_s)
