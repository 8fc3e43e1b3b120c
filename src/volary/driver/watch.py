"""Who is alive, and who is lost: a plain state machine over heartbeats and a clock that is handed in.

Two kinds of trouble, told apart by what a worker says of itself:
- silent: no beat comes. The process is stopped, or its host or link is gone.
- stuck: beats come, but no progress. Its own code hangs, unless it waits in the exchange for somebody else.
A worker whose connection ends without a goodbye is dead.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Literal

WAITING = "exchange"  # the phase in which a worker waits for others
STARTING = "starting"
SLOW_FACTOR = 5.0  # a phase may take this many times the longest one so far before it counts as a hang
FORGIVE_S = 2.0  # a longer gap between two ticks is the watcher's own fault

Kind = Literal["died", "silent", "stuck", "missing"]


@dataclass(frozen=True)
class Rules:
    """Bounds in seconds: of a worker's silence or standstill, and of the time until all workers have stepped once."""

    suspect_after_s: float
    give_up_after_s: float
    startup_timeout_s: float


@dataclass(frozen=True)
class Lost:
    """Why a worker is given up. sentence: what happened to it, without its name."""

    rank: int
    kind: Kind
    sentence: str


@dataclass
class Seen:
    """What is known of one worker. peer: its connection; None before it came and after it went."""

    rank: int
    since: float
    peer: int | None = None
    pid: int = 0
    host: str = "?"
    step: int = 0
    phase: str = STARTING
    progress: int = -1
    longest_s: float = 0.0
    heard_at: float = 0.0
    moved_at: float = 0.0
    suspected: bool = False
    goodbye: str = ""
    stack: str = ""


@dataclass
class Watch:
    """Watches `world_size` workers by `rules`. lost: those given up, first cause first. suspects: new since cleared."""

    world_size: int
    rules: Rules
    now: float
    lost: list[Lost] = field(default_factory=list)
    suspects: list[Lost] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.workers = {rank: Seen(rank, since=self.now) for rank in range(self.world_size)}
        self._rank_of: dict[int, int] = {}

    @property
    def everyone_left(self) -> bool:
        """Whether every worker has said goodbye or is given up."""
        gone = {lost.rank for lost in self.lost}
        return all(worker.goodbye or rank in gone for rank, worker in self.workers.items())

    def joined(self, peer: int, rank: int, pid: int, host: str, now: float) -> bool:
        """A worker has connected; False if there is no such rank, or it is taken."""
        worker = self.workers.get(rank)
        if worker is None or worker.peer is not None or worker.goodbye:
            return False
        worker.peer, worker.pid, worker.host = peer, pid, host
        worker.heard_at = worker.moved_at = now
        self._rank_of[peer] = rank
        return True

    def worker_at(self, peer: int) -> Seen | None:
        """The worker behind a connection."""
        rank = self._rank_of.get(peer)
        return None if rank is None else self.workers[rank]

    def heard(self, peer: int, beat: dict[str, Any], now: float) -> None:
        """A beat has come."""
        worker = self.worker_at(peer)
        if worker is None:
            return
        worker.heard_at = now
        worker.step, worker.phase, worker.longest_s = beat["step"], beat["phase"], beat["longest_s"]
        worker.goodbye = beat.get("bye", "")
        worker.stack = beat.get("stack", worker.stack)
        if beat["progress"] != worker.progress:
            worker.progress, worker.moved_at, worker.suspected = beat["progress"], now, False

    def left(self, peer: int) -> None:
        """A connection has ended."""
        worker = self.worker_at(peer)
        if worker is None:
            return
        worker.peer = None
        if not worker.goodbye:
            self._give_up(worker, "died", "died")

    def tick(self, now: float) -> list[int]:
        """Judge everybody; returns the connections of workers whose stack should be asked for."""
        gap = now - self.now
        self.now = now
        if gap > FORGIVE_S:
            for worker in self.workers.values():
                worker.heard_at += gap
                worker.moved_at += gap
                worker.since += gap
        ask = []
        for trouble, seconds, limit in self._troubles():
            worker = self.workers[trouble.rank]
            if seconds > limit:
                self._give_up(worker, trouble.kind, trouble.sentence)
            elif not worker.suspected:
                worker.suspected = True
                self.suspects.append(trouble)
                if worker.peer is not None and trouble.kind == "stuck":
                    ask.append(worker.peer)
        return ask

    def _troubles(self) -> Iterator[tuple[Lost, float, float]]:
        """Everybody beyond the bound of suspicion: what is wrong, for how long, and when it is too long."""
        present = [worker for worker in self.workers.values() if worker.peer is not None and not worker.goodbye]
        all_wait = bool(present) and all(worker.phase == WAITING for worker in present)
        laggard = min(present, key=lambda worker: worker.step) if all_wait else None
        for worker in self.workers.values():
            if worker.goodbye:
                continue
            if worker.peer is None:
                waited = self.now - worker.since
                if waited > self.rules.startup_timeout_s:
                    yield Lost(worker.rank, "missing", f"did not come within {waited:.0f} s"), waited, 0.0
                continue
            silent = self.now - worker.heard_at
            if silent > self.rules.suspect_after_s:
                sentence = f"has been silent for {silent:.0f} s: it is stopped, or its host is gone"
                yield Lost(worker.rank, "silent", sentence), silent, self.rules.give_up_after_s
                continue
            still = self.now - worker.moved_at
            if worker.phase != WAITING or worker is laggard:
                suspect, limit = self._bounds(worker)
                if still > suspect:
                    sentence = f"is alive but has made no progress for {still:.0f} s"
                    yield Lost(worker.rank, "stuck", sentence), still, limit

    def _bounds(self, worker: Seen) -> tuple[float, float]:
        """After how long a standstill of this worker is suspect, and too long."""
        if worker.step == 0:
            return self.rules.startup_timeout_s / 2, self.rules.startup_timeout_s
        slow = SLOW_FACTOR * worker.longest_s
        return max(self.rules.suspect_after_s, slow / 2), max(self.rules.give_up_after_s, slow)

    def _give_up(self, worker: Seen, kind: Kind, sentence: str) -> None:
        if all(lost.rank != worker.rank for lost in self.lost):
            self.lost.append(Lost(worker.rank, kind, sentence))
