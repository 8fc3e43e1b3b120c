"""Who is alive, and who is lost: a plain state machine over heartbeats and a clock that is handed in.

Four kinds of trouble, told apart by what a worker says of itself:
- died: its connection has ended without a goodbye, and it has not come back.
- missing: it has not come.
- silent: no beat comes. The process is stopped, or its host or link is gone.
- stuck: beats come, but no progress. Its own code hangs, unless it waits in the exchange for somebody else.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Literal

import msgspec

from volary.run.verdict import Verdict

WAITING = "exchange"  # the phase in which a worker waits for others
STARTING = "starting"
UNMEASURED = (STARTING, "checkpoint", "between steps")  # they take what disk and user's code take: no step tells
SLOW_FACTOR = 5.0  # a phase may take this many times its longest so far before it counts as a hang
LOOK_S = 0.5  # at most this much time is seen to pass between two ticks: a watch that slept blames nobody for it

AWAY_S = 3.0  # a worker whose connection broke has so long to come back; one whose process ended is known before

Kind = Literal["died", "silent", "stuck", "missing"]


@dataclass(frozen=True)
class Rules:
    """Bounds in seconds: of a worker's silence or standstill, and of the time until it has done its first step."""

    suspect_after_s: float
    give_up_after_s: float
    startup_timeout_s: float


@dataclass(frozen=True)
class Lost:
    """Why a worker is suspected or given up. sentence: what happened to it, without its name."""

    rank: int
    kind: Kind
    sentence: str


class Beat(msgspec.Struct):
    """What a worker says four times a second: where it is, and what is new since its last beat.

    progress: grows with every change of phase. rows: steps it has done (`run.journal.STEP_FIELDS`). said: its events.
    bye: its own account of its end, with the last beat. stack: what its threads are in, if it was asked. number: from 1
    on; a beat that may not have come is said again.
    """

    step: int
    phase: str
    progress: int
    rows: list[list[float | None]] = []
    said: list[dict[str, Any]] = []
    bye: Verdict | None = None
    stack: str = ""
    number: int = 0


@dataclass
class Seen:
    """What is known of one worker. peer: its connection; None before it came, after it went, and while it is away.

    expected_at: from when on it is waited for. heard_at, moved_at: when it last beat, and when its progress last grew.
    away_at: when its connection ended. beats: the number of its newest beat.
    stepped: whether it has done a step in this life. longest_s: the longest standstill that ended well, by phase.
    dismissed: it is given up, and the run goes on without it.
    """

    rank: int
    expected_at: float = 0.0
    peer: int | None = None
    pid: int = 0
    host: str = "?"
    step: int = 0
    phase: str = STARTING
    progress: int = -1
    stepped: bool = False
    heard_at: float = 0.0
    away_at: float = 0.0
    beats: int = 0
    moved_at: float = 0.0
    longest_s: dict[str, float] = field(default_factory=dict)
    goodbye: Verdict | None = None
    stack: str = ""
    dismissed: bool = False

    @property
    def here(self) -> bool:
        """Whether it has come and not gone."""
        return self.peer is not None and self.goodbye is None

    @property
    def counts(self) -> bool:
        """Whether it is here, and the run reckons with it."""
        return self.here and not self.dismissed

    @property
    def away(self) -> bool:
        """Whether its connection ended without a goodbye, so that it may come back."""
        return self.pid != 0 and self.peer is None and self.goodbye is None and not self.dismissed


@dataclass(frozen=True)
class _Trouble:
    """Somebody beyond the bound of suspicion. seconds: for how long; limit_s: after how long it is given up."""

    lost: Lost
    seconds: float
    limit_s: float


class Watch:
    """Watches `world_size` workers by `rules`. lost: those given up, first cause first. suspects: new since cleared."""

    def __init__(self, world_size: int, rules: Rules, now: float) -> None:
        self.world_size, self.rules = world_size, rules
        self.lost: list[Lost] = []
        self.suspects: list[Lost] = []
        self.workers = {rank: Seen(rank) for rank in range(world_size)}
        self._rank_of: dict[int, int] = {}
        self._suspected: set[int] = set()
        self._clock = now
        self._watched_s = 0.0

    @property
    def everyone_left(self) -> bool:
        """Whether every worker has said goodbye or is given up."""
        gone = {lost.rank for lost in self.lost}
        return all(worker.goodbye or rank in gone for rank, worker in self.workers.items())

    def expect(self) -> int:
        """One more worker is to come; its rank, above all there were."""
        rank = max(self.workers, default=-1) + 1
        # a new dictionary: another thread may be looking through the old one
        self.workers = self.workers | {rank: Seen(rank, expected_at=self._watched_s)}
        return rank

    def dismiss(self, rank: int) -> None:
        """Go on without a worker that is given up: nobody waits for it any more."""
        self.workers[rank].dismissed = True

    def fell(self, rank: int, sentence: str) -> None:
        """A worker has gone and not finished its work, by what others know of it or itself says."""
        self._give_up(Lost(rank, "died", sentence))

    def joined(self, peer: int, rank: int, pid: int, host: str) -> bool:
        """A worker has connected, or come back; False if there is no such rank, or it is somebody else's."""
        worker = self.workers.get(rank)
        if worker is None or worker.dismissed or worker.goodbye or any(lost.rank == rank for lost in self.lost):
            return False
        if worker.pid and (worker.pid, worker.host) != (pid, host):
            return False
        if not worker.pid:
            worker.moved_at = self._watched_s
        worker.peer, worker.pid, worker.host = peer, pid, host
        worker.heard_at = self._watched_s
        self._rank_of[peer] = rank
        return True

    def is_cause(self, verdict: Verdict) -> bool:
        """Whether a worker's own account is reason enough to end any run: an error of its own, or a refusal.

        One that came later and is refused before it took part ends nothing but itself.
        """
        return verdict.outcome == "failed" or (verdict.outcome == "refused" and verdict.rank < self.world_size)

    def worker_at(self, peer: int) -> Seen | None:
        """The worker behind a connection."""
        rank = self._rank_of.get(peer)
        return None if rank is None else self.workers[rank]

    def heard(self, peer: int, beat: Beat) -> None:
        """A beat has come."""
        worker = self.worker_at(peer)
        if worker is None or worker.goodbye or worker.dismissed:
            return
        worker.heard_at, worker.beats = self._watched_s, beat.number
        if beat.progress != worker.progress:
            still_s = self._watched_s - worker.moved_at
            worker.longest_s[worker.phase] = max(still_s, worker.longest_s.get(worker.phase, 0.0))
            worker.moved_at = self._watched_s
        worker.step, worker.phase, worker.progress = beat.step, beat.phase, beat.progress
        worker.stepped = worker.stepped or bool(beat.rows)
        worker.goodbye = beat.bye
        worker.stack = beat.stack or worker.stack

    def left(self, peer: int) -> None:
        """A connection has ended; whoever is behind it may come back with another one."""
        worker = self.worker_at(peer)
        if worker is not None and worker.peer == peer:
            worker.peer, worker.away_at = None, self._watched_s

    def conclude(self) -> None:
        """The run is over: who is away does not come back."""
        for worker in self.workers.values():
            if worker.away:
                self._give_up(Lost(worker.rank, "died", "died"))

    def tick(self, now: float) -> list[int]:
        """Judge everybody; returns the connections of workers whose stack should be asked for."""
        self._watched_s += min(now - self._clock, LOOK_S)
        self._clock = now
        troubles = list(self._absent()) or list(self._stuck())
        ask = []
        for trouble in troubles:
            worker = self.workers[trouble.lost.rank]
            if trouble.seconds > trouble.limit_s:
                self._give_up(trouble.lost)
            elif worker.rank not in self._suspected:
                self.suspects.append(trouble.lost)
                if worker.peer is not None and trouble.lost.kind == "stuck":
                    ask.append(worker.peer)
        self._suspected = {trouble.lost.rank for trouble in troubles}
        return ask

    def _absent(self) -> Iterator[_Trouble]:
        """Those who do not beat. While there are any, nobody counts as stuck: the others may wait for them."""
        for worker in self.workers.values():
            if worker.counts:
                silent_s = self._watched_s - worker.heard_at
                if silent_s > self.rules.suspect_after_s:
                    sentence = f"has been silent for {silent_s:.0f} s: it is stopped, or its host is gone"
                    yield _Trouble(Lost(worker.rank, "silent", sentence), silent_s, self.rules.give_up_after_s)
            elif worker.away and self._watched_s - worker.away_at > AWAY_S:
                yield _Trouble(Lost(worker.rank, "died", "died"), self._watched_s - worker.away_at, 0.0)
            elif not worker.pid and not worker.dismissed:
                missing_s = self._watched_s - worker.expected_at
                if missing_s > self.rules.startup_timeout_s:
                    sentence = f"did not come within {self.rules.startup_timeout_s:.0f} s"
                    yield _Trouble(Lost(worker.rank, "missing", sentence), missing_s, 0.0)

    def _stuck(self) -> Iterator[_Trouble]:
        """Those who make no progress, though nobody keeps them waiting."""
        here = [worker for worker in self.workers.values() if worker.counts]
        working = [worker for worker in here if worker.phase != WAITING]
        for worker in working:
            still_s = self._watched_s - worker.moved_at
            suspect_s, limit_s = self._bounds(worker)
            if still_s > suspect_s:
                sentence = f"is alive but has made no progress for {still_s:.0f} s"
                yield _Trouble(Lost(worker.rank, "stuck", sentence), still_s, limit_s)
        if here and not working and all(worker.pid or worker.dismissed for worker in self.workers.values()):
            yield from self._deadlocked(here)

    def _deadlocked(self, here: list[Seen]) -> Iterator[_Trouble]:
        """All wait for each other. It began when the last one came to it; named is who is furthest behind."""
        still_s = self._watched_s - max(worker.moved_at for worker in here)
        suspect_s, limit_s = map(max, zip(*map(self._bounds, here), strict=True))
        if still_s > suspect_s:
            sentence = f"waits in the exchange, like all others, for {still_s:.0f} s: a link between hosts may be cut"
            named = min(here, key=lambda worker: worker.step)
            yield _Trouble(Lost(named.rank, "stuck", sentence), still_s, limit_s)

    def _bounds(self, worker: Seen) -> tuple[float, float]:
        """After how long a standstill of this worker is suspect, and too long."""
        if not worker.stepped or worker.phase in UNMEASURED:
            return self.rules.startup_timeout_s / 2, self.rules.startup_timeout_s
        slow_s = SLOW_FACTOR * worker.longest_s.get(worker.phase, 0.0)
        return max(self.rules.suspect_after_s, slow_s / 2), max(self.rules.give_up_after_s, slow_s)

    def _give_up(self, lost: Lost) -> None:
        if all(known.rank != lost.rank for known in self.lost):
            self.lost.append(lost)
