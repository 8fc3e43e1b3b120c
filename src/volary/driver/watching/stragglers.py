"""The slowest worker: who takes longer for its own work than the others, by how much, and in what, by steps' rows."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median, median_low
from typing import Any

from volary.run.database.journal import StepRow

STEPS = 20  # that are compared
FEW_STEPS = 10  # with fewer of a worker nothing is said of it
SLOW_SHARE = 0.25  # of its steps' time by which a worker exceeds the others, and is told as slow
EVEN_SHARE = 0.1  # and by which it no longer is
LEAST_S = 0.005  # a step: less is noise
LOOK_EVERY_S = 1.0
LOOKS = 3  # in a row that must find the same
BETWEEN, EXCHANGE = "between steps", "exchange"
OWN = ("data", "forward", "backward", "optimizer", BETWEEN)  # a worker's own time, whoever waits


@dataclass(frozen=True)
class Slow:
    """A worker that is slower than the others; rank None: all are, since what they wait for together takes longer.

    share: of each step, by which it is more than usual. part: of the step, in which most of that arises. part_s,
    usual_s: what that part takes it, and takes the others (or took all of them at first).
    """

    rank: int | None
    share: float
    part: str
    part_s: float
    usual_s: float


class Stragglers:
    """Takes all steps' rows; `look` says what is new. lock_step: all workers wait for the slowest."""

    def __init__(self, *, lock_step: bool) -> None:
        self._lock_step = lock_step
        self._named: Slow | None = None
        self._newest: tuple[int | None, str] | None = None  # who was found at the last look
        self._times = 0  # that this was found in a row
        self._first_exchange_s: float | None = None
        self._rows: dict[int, deque[StepRow]] = {}
        self._looked_at = -math.inf

    def did(self, rank: int, rows: Iterable[StepRow]) -> None:
        kept = self._rows.setdefault(rank, deque(maxlen=STEPS + 1))
        kept.extend(row for row in rows if math.isfinite(row.step_s + row.ended_at))

    def look(
        self, here: Collection[int], now: float, *, linked: bool = False
    ) -> tuple[int | None, dict[str, Any]] | None:
        """Rank and data of an event, if somebody else than before is slow, or for another cause, or nobody any more.

        here: the workers that are compared. linked: they are on several hosts.
        """
        if now - self._looked_at < LOOK_EVERY_S:
            return None
        self._looked_at = now
        parts = {rank: _parts(self._rows[rank]) for rank in here if len(self._rows.get(rank, ())) > FEW_STEPS}
        if len(parts) < 2:
            return None
        before, found = self._named, self._found(parts, linked)
        if not self._lasts(found) or _who(found) == _who(before):
            return None
        self._named = found
        if found is not None:
            return found.rank, {"reason": self._sentence(found), "cause": found.part, "share": round(found.share, 3)}
        return (before.rank, {"reason": _over(before), "over": True}) if before else None

    def _lasts(self, found: Slow | None) -> bool:
        """Whether the same was found often enough in a row: on a busy machine now one is slower, now another."""
        self._times = self._times + 1 if _who(found) == self._newest else 1
        self._newest = _who(found)
        return self._times >= LOOKS

    def _found(self, parts: Mapping[int, Mapping[str, float]], linked: bool) -> Slow | None:
        before = self._named.rank if self._named else None
        if (found := slowest(parts, OWN, before)) is not None:
            return found
        if not self._lock_step:  # who waits for the servers longer than others do has a slow way to them
            return slowest(parts, (*OWN, EXCHANGE), before)
        return self._slow_exchange(parts) if linked else None

    def _slow_exchange(self, parts: Mapping[int, Mapping[str, float]]) -> Slow | None:
        """Find what all wait for, against the first steps; a worker that is late waits for nothing else."""
        exchange_s = min(times[EXCHANGE] for times in parts.values())
        if self._first_exchange_s is None:
            self._first_exchange_s = exchange_s
        more_s = exchange_s - self._first_exchange_s
        share = more_s / median(sum(times.values()) for times in parts.values())
        known = self._named is not None and self._named.rank is None
        if more_s < max(LEAST_S, self._first_exchange_s) or share < (EVEN_SHARE if known else SLOW_SHARE):
            return None
        return Slow(None, share, EXCHANGE, exchange_s, self._first_exchange_s)

    def _sentence(self, slow: Slow) -> str:
        took = f"{_time(slow.part_s)} where the others take {_time(slow.usual_s)}"
        if slow.rank is None:
            return (
                f"the exchange takes all workers {_time(slow.part_s)} of each step where it took "
                f"{_time(slow.usual_s)} at first: a link has become slow"
            )
        if slow.part == EXCHANGE:
            return f"rank {slow.rank} is the slowest: it waits for the servers {took}: its link is slow"
        whole = (
            f"others wait {slow.share:.0%} of each step for it"
            if self._lock_step
            else f"{slow.share:.0%} of its step is more than they need"
        )
        where = "what it does between steps" if slow.part == BETWEEN else f"its {slow.part}"
        return f"rank {slow.rank} is the slowest: {whole}; {where} takes {took}"


def slowest(parts: Mapping[int, Mapping[str, float]], of: Sequence[str], before: int | None = None) -> Slow | None:
    """The worker that takes clearly longer than the others, if there is one. parts: seconds a step, by worker and part.

    of: the parts that count. before: who was named last, which is kept until it is hardly slower than the others.
    """
    own = {rank: sum(times[part] for part in of) for rank, times in parts.items()}
    rank = max(own, key=lambda one: own[one])
    others = [times for one, times in parts.items() if one != rank]
    excess_s = own[rank] - median(own[one] for one in own if one != rank)
    share = excess_s / max(sum(parts[rank].values()), LEAST_S)
    if excess_s < LEAST_S or share < (EVEN_SHARE if rank == before else SLOW_SHARE):
        return None
    usual = {part: median(times[part] for times in others) for part in of}
    part = max(of, key=lambda one: parts[rank][one] - usual[one])
    return Slow(rank, share, part, parts[rank][part], usual[part])


def _who(slow: Slow | None) -> tuple[int | None, str] | None:
    return None if slow is None else (slow.rank, slow.part)


def _over(slow: Slow) -> str:
    if slow.rank is None:
        return "the exchange takes as long as at first again"
    return f"rank {slow.rank} is no longer slower than the others"


def _parts(rows: Iterable[StepRow]) -> dict[str, float]:
    """Seconds a step by part, as its newest steps mostly are: a single slow one does not count."""
    newest = list(rows)
    pairs = [(one, two) for one, two in pairwise(newest) if two.step == one.step + 1]
    between = [max(0.0, two.ended_at - one.ended_at - two.step_s) for one, two in pairs]
    parts = {part: median(getattr(row, f"{part}_s") for row in newest) for part in (*OWN[:-1], EXCHANGE)}
    return parts | {BETWEEN: median_low(between) if between else 0.0}


def _time(seconds: float) -> str:
    return f"{seconds:.1f} s" if seconds >= 1 else f"{1000 * seconds:.3g} ms"
