"""The state that the watch keeps of each worker, its bounds, and its conclusions: plain data."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Any, Literal

import msgspec

from volary.run.control.requests import ChangeMembers
from volary.run.verdict import Verdict
from volary.session.values.worker_range import WorkerRange

IDLE = "idle"
WAITING = ("exchange", IDLE)  # phases in which a worker waits for others: for their values, for something to do
STARTING = "starting"
RARE = (STARTING, "checkpoint", "evaluate")  # phases that no step contains, so that recent steps say nothing of them
CARRYING = (*WAITING, STARTING, "checkpoint")  # phases that are as long as what they send and receive takes
FIRST_STEPS = 3  # of an attempt, which compile, allocate and connect: what they take is not usual
KEPT_STEPS = 40  # of which what is usual is told
FEW_STEPS = 5  # with fewer nobody knows what is usual
QUANTILE = 0.9

Kind = Literal["died", "missing", "silent", "stuck", "cut", "left", "parted"]


@dataclass(frozen=True)
class Rules:
    """Bounds, in seconds, and what is known of the run.

    suspect_after_s, give_up_after_s: of silence. startup_timeout_s: of the start. stuck_after_s: of a standstill that
    others wait for. own_loop: the loop is the user's. keeper_host: where servers keep the parameters, if they do.
    spares: workers, the last ones, that wait for the place of a lost one. between: how few and how many there may be,
    as they join and leave; None: as the session allows. wait_for_driver_s: for how long workers train on without a
    driver; standby: whether another one waits beside it. replaces: the attempt whose driver is lost, and whose workers
    come to this one; None: its own are started.
    """

    suspect_after_s: float
    give_up_after_s: float
    startup_timeout_s: float
    stuck_after_s: float = 600.0
    own_loop: bool = False
    keeper_host: str = ""
    spares: int = 0
    between: WorkerRange | None = None
    wait_for_driver_s: float = 0.0
    standby: bool = False
    replaces: int | None = None


@dataclass(frozen=True)
class LostWorker:
    """Why a worker is suspected or given up. sentence: what happened to it, without its name."""

    rank: int
    kind: Kind
    sentence: str


@dataclass(frozen=True)
class Trouble:
    """A worker beyond the bound of suspicion. over: beyond that of giving up. almost: it will be in a moment.

    by_link_s: for how long, where all that is seen of it came over a link, which may be slow; 0 where more is known.
    """

    lost: LostWorker
    by_link_s: float = 0.0
    over: bool = False
    almost: bool = False


class WorkerBeat(msgspec.Struct):
    """A beat of a worker, four times a second: where it is, and what is new since its last beat.

    progress: grows with every change of phase. rows: steps it has done (`run.journal.STEP_FIELDS`). events: what else
    it reports. carries: its connections have moved bytes since the last one, though it made no progress. call: which
    call of the user's has all workers wait for each other, `worker.mean` say; empty in a step. part: of the network,
    that it has, in words. bye: its own account of its end, with the last beat. stack: what its threads are in, if it
    was asked. number: from 1 on; a beat that may not have come is said again. paused: the request for which all members
    have paused, as others are to follow them. leaving: it was asked, where it runs, to leave the run. taken_away: its
    machine, or its place there, is taken away: the run ends after this step.
    """

    step: int
    phase: str
    progress: int
    rows: list[list[float | None]] = []
    events: list[dict[str, Any]] = []
    bye: Verdict | None = None
    stack: str = ""
    number: int = 0
    call: str = ""
    part: str = ""
    carries: bool = False
    paused: ChangeMembers | None = None
    leaving: bool = False
    taken_away: bool = False


class Usual:
    """The longest standstill of each recent step; `seconds` is the quantile of them, so that a few change nothing."""

    def __init__(self) -> None:
        self._longest: deque[float] = deque(maxlen=KEPT_STEPS)
        self._step = -1

    def add(self, step: int, seconds: float) -> None:
        """A standstill of this step, so far."""
        if self._longest and step <= self._step:
            self._longest[-1] = max(self._longest[-1], seconds)
        else:
            self._step = step
            self._longest.append(seconds)

    @property
    def seconds(self) -> float | None:
        """The longest standstill of a step that is still usual; None if too few are known."""
        if len(self._longest) < FEW_STEPS:
            return None
        return sorted(self._longest)[int(QUANTILE * (len(self._longest) - 1))]


@dataclass
class WorkerStatus:
    """The status of one worker. peer: its connection; None before it came, after it went, and while it is away.

    host: where it is, or is to be; empty: not known. expected_at: from when on it is waited for. last_beat_at and
    moved_at: when it last beat, and when its progress last grew. carried_at: when its connections were last seen to
    move. away_at: when its connection ended. beats: the number of its newest beat. done: steps in this attempt. usual:
    its recent standstills, by phase. stack: what its threads are in, and asked_at: when that was asked, both of the
    present standstill alone. process_here: the engine sees its process on this machine. worked_at: when that was last
    seen to use the processor. dismissed: the run continues without it. spare: it waits for a lost one's place,
    or, as it has joined, until it is one of those that train. taken_away: it has said that its machine is.
    harmless_s: by kind of trouble, the longest that only its link showed, and that ended by itself.
    """

    rank: int
    expected_at: float = 0.0
    peer: int | None = None
    pid: int = 0
    host: str = ""
    step: int = 0
    phase: str = STARTING
    call: str = ""
    part: str = ""
    progress: int = -1
    done: int = 0
    last_beat_at: float = 0.0
    away_at: float = 0.0
    beats: int = 0
    moved_at: float = 0.0
    carried_at: float = 0.0
    usual: dict[str, Usual] = field(default_factory=dict)
    goodbye: Verdict | None = None
    stack: str = ""
    asked_at: float | None = None
    process_here: bool = False
    worked_at: float | None = None
    dismissed: bool = False
    spare: bool = False
    taken_away: bool = False
    harmless_s: dict[Kind, float] = field(default_factory=dict)

    @property
    def who(self) -> str:
        """Behind its rank in a sentence: where it is, and which part of a network it has; empty: not known."""
        known = [f"host {self.host}", f"process {self.pid}" if self.pid else "", self.part]
        return f" ({', '.join(filter(None, known))})" if self.host else ""

    @property
    def still_since(self) -> float:
        """Since when neither it nor, where it waits for its connections, what they carry has moved."""
        carrying = self.phase in CARRYING
        return max(self.moved_at, self.carried_at) if carrying else self.moved_at

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

    @property
    def stepped(self) -> bool:
        """Whether it has done a step in this attempt."""
        return self.done > 0

    def on_beat(self, beat: WorkerBeat, now_s: float) -> None:
        """Take in a heartbeat that came at `now_s`: how far the worker is, and since when."""
        self.last_beat_at, self.worked_at, self.beats = now_s, None, beat.number
        if beat.carries:
            self.carried_at = now_s
        if beat.progress != self.progress:
            if self.done >= FIRST_STEPS:
                self.usual.setdefault(self.phase, Usual()).add(self.step, now_s - self.moved_at)
            self.moved_at = now_s
            self.stack, self.asked_at = "", None  # of a standstill that is over
        self.step, self.phase, self.call, self.progress = beat.step, beat.phase, beat.call, beat.progress
        self.part, self.taken_away = beat.part, beat.taken_away
        self.done += len(beat.rows)
        self.goodbye = beat.bye
        self.stack = beat.stack or self.stack
