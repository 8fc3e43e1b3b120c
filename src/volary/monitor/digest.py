"""A run at one moment, as views need it: read here, drawn elsewhere."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from math import isfinite

from volary.errors import VolaryError
from volary.monitor.compute import ComputeRate, compute_rate
from volary.monitor.outline import Outline, outline
from volary.monitor.wording import TROUBLE, trouble
from volary.run.database.network import LayerGraph
from volary.run.database.reader import Event, RunReader, Window, attempt_in
from volary.run.directory import RunDirectory
from volary.run.launch.queued import job_of
from volary.run.machine.clock import now_s

_WARNINGS_KEPT = 3
# of a worker's start, in order; it says where it is
STAGES = (
    "importing torch",
    "meeting the other workers",
    "building the network",
    "waiting for the servers",
    "looking for a checkpoint",
    "doing the first step",
)


@dataclass(frozen=True)
class Measurement:
    """The values of one evaluation, or the best value of one metric, and the step that they are of."""

    step: int
    values: dict[str, float]


@dataclass(frozen=True)
class Digest:
    """A run at one moment; None says not known yet.

    batch_size: samples of a step, where that was searched for in the run. recorded_loss: by a loop of the user's own,
    or else what its backward was called on. elapsed_s: what it took in all its restart attempts, and attempt_s in the
    newest. compute: how fast all workers compute. written: the newest text. route: how contributions are exchanged, and
    why so; empty where nothing is, or nobody knows yet. warnings and news are of the attempt that the run is in; news
    holds the events since the last look. error: the kind of error that ended it (volary.errors), and exit_code what the
    command ended with then. stopping: it was asked to end after its step. starting: what the start of this attempt
    waits for, until its first step is done.
    """

    directory: RunDirectory
    state: str
    session: Outline = field(default_factory=Outline)
    workers: int = 1
    route: str = ""
    step: int = 0
    steps_planned: int | None = None
    epochs_planned: float | None = None
    batch_size: int | None = None
    window: Window | None = None
    compute: ComputeRate | None = None
    recorded_loss: float | None = None
    left_s: float | None = None
    elapsed_s: float | None = None
    attempt_s: float | None = None
    metric: str = ""
    evaluated: Measurement | None = None
    written: Event | None = None
    best: Measurement | None = None
    warnings: tuple[Event, ...] = ()
    news: tuple[Event, ...] = ()
    message: str = ""
    error: str = ""
    exit_code: int = VolaryError.exit_code
    stopping: bool = False
    starting: str = ""


def known_number(info: dict[str, str], key: str) -> float | None:
    """The number under `key`, or None where the run does not tell one."""
    try:
        return float(info[key])
    except (KeyError, ValueError):
        return None


def best_of(info: dict[str, str]) -> Measurement | None:
    """The best value so far, as the driver noted it."""
    value, step = known_number(info, "best"), known_number(info, "best_step")
    if value is None:
        return None
    return Measurement(int(step or 0), {info.get("metric", "metric"): value})


def steps_done(info: dict[str, str], state: str, recorded: int) -> int:
    """How far the run is. recorded: the newest step with a row."""
    if (counted := known_number(info, "steps_now")) is not None:
        return int(counted)  # by the roster: workers count contributions of their own
    # noted when an attempt ends: while the next one runs the note is out of date
    noted = None if state in ("running", "lost") else known_number(info, "steps_done")
    return max(int(noted or 0), recorded)


def elapsed_s(reader: RunReader, info: dict[str, str], state: str, now: float) -> float | None:
    """Seconds that the run took in all its restart attempts, without what was between them; None before it began."""
    newest_s = attempt_s(reader, info, state, now)
    return None if newest_s is None else reader.earlier_s(attempt_in(info, before=0)) + newest_s


def attempt_s(reader: RunReader, info: dict[str, str], state: str, now: float) -> float | None:
    """Seconds since the newest restart attempt began, until its end or `now`; of a lost run, until its last sign."""
    started, ended = known_number(info, "started_at"), known_number(info, "ended_at")
    if started is None:
        return None
    if ended is None or ended < started:  # the end of an earlier attempt
        ended = reader.last_sign() if state == "lost" else now
    return max(0.0, ended - started)


def waits_for(info: dict[str, str]) -> str:
    """Say what the start of a run waits for, by what its workers report."""
    workers = int(known_number(info, "workers") or 1)
    try:
        connected = len(json.loads(info.get("hosts", "{}")))
    except (ValueError, TypeError):
        connected = 0
    if connected < workers:
        return f"{connected} of {workers} workers connected"
    doing = {rank: info.get(f"doing_{rank}", STAGES[0]) for rank in range(workers)}
    last = min(doing.values(), key=lambda what: STAGES.index(what) if what in STAGES else len(STAGES))
    behind = [str(rank) for rank, what in doing.items() if what == last]
    return last if len(behind) == workers else f"rank {', '.join(behind)} is {last}"


class Follower:
    """Looks at a run again and again, reading only what is new. Raises RunError if the run cannot be read."""

    def __init__(self, directory: RunDirectory, clock: Callable[[], float] = now_s) -> None:
        self._directory = directory
        self._clock = clock
        self._reader = RunReader(directory)
        self._session = outline(directory.session)
        self._last_event = 0
        self._first_step = 0
        self._earlier_s = 0.0
        self._evaluated: Measurement | None = None
        self._warnings: deque[Event] = deque(maxlen=_WARNINGS_KEPT)
        self._stopping = False
        self._written: Event | None = None
        self._graph: LayerGraph | None = None

    def close(self) -> None:
        """Close the run's database."""
        self._reader.close()

    def look(self) -> Digest:
        """The run as it is now."""
        info = self._reader.info()
        attempt = attempt_in(info, before=0)
        events = list(self._reader.events(after=self._last_event))
        for event in events:
            self._take(event)
        window, state = self._reader.window(), self._reader.state()
        planned, best = known_number(info, "steps_planned"), best_of(info)
        batch = known_number(info, "batch_size")
        step = steps_done(info, state, window.step if window else 0)
        newest_s = attempt_s(self._reader, info, state, self._clock())
        return Digest(
            directory=self._directory,
            state=state,
            session=self._session,
            workers=int(known_number(info, "workers") or self._session.workers or 1),
            route=info.get("route", ""),
            step=step,
            steps_planned=int(planned) if planned else None,
            epochs_planned=known_number(info, "epochs_planned"),
            batch_size=int(batch) if batch else None,
            window=window,
            compute=self._compute(window, info),
            recorded_loss=self._own_loss(window) if self._session.own_loop else None,
            left_s=self._left(step, planned, info),
            elapsed_s=None if newest_s is None else self._earlier_s + newest_s,
            attempt_s=newest_s,
            metric=info.get("metric", ""),
            evaluated=self._evaluated,
            written=self._written,
            best=best if best and best.step <= step else None,
            warnings=tuple(event for event in self._warnings if event.attempt == attempt),
            news=tuple(event for event in events if event.attempt == attempt),
            message=info.get("message", ""),
            error=info.get("error", ""),
            exit_code=int(info.get("exit_code", VolaryError.exit_code)),
            stopping=self._stopping,
            starting=self._starting(info, state, window),
        )

    def _compute(self, window: Window | None, info: dict[str, str]) -> ComputeRate | None:
        if window is None:
            return None
        if self._graph is None:  # it is recorded once
            self._graph = self._reader.network()
        return compute_rate(self._graph, window.samples_per_s, int(known_number(info, "workers") or 1))

    def _own_loss(self, window: Window | None) -> float | None:
        recorded = self._reader.newest("loss")
        if recorded is None and window and isfinite(window.loss):
            return window.loss
        return recorded

    def _take(self, event: Event) -> None:
        self._last_event = event.id
        if event.kind in TROUBLE:
            # several ranks may tell of the same thing
            if (event.attempt, trouble(event)) not in [(known.attempt, trouble(known)) for known in self._warnings]:
                self._warnings.append(event)
        elif event.kind == "evaluated":
            values = {name: float(value) for name, value in event.data.items() if isinstance(value, int | float)}
            self._evaluated = Measurement(event.step or 0, values)
        elif event.kind == "text":
            newest = self._written.data.get("of_step", 0) if self._written else 0
            if event.data.get("of_step", 0) >= newest:  # over servers another worker may say its own later
                self._written = event
        elif event.kind == "stopping":
            self._stopping = True
        elif event.kind == "started":
            self._stopping = False
            self._earlier_s = self._reader.earlier_s(event.attempt)
            self._first_step = self._reader.last_step() if event.attempt else 0
        elif event.kind == "resumed":
            self._first_step = int(event.data.get("from_step", 0))
            if self._evaluated and self._evaluated.step > self._first_step:
                self._evaluated = None

    def _starting(self, info: dict[str, str], state: str, window: Window | None) -> str:
        begun = window is not None and window.step > self._first_step
        if "steps_now" in info:  # by the roster: workers number contributions of their own
            begun = window is not None and "counted_from" in info
        if state == "queued":
            return "waits in the queue of this machine"
        if state not in ("new", "running") or begun:
            return ""
        if state == "new" and (job := job_of(self._directory)) is not None:
            return f"{job} waits in the queue"
        return waits_for(info)

    def _left(self, step: int, planned: float | None, info: dict[str, str]) -> float | None:
        if "steps_now" in info:
            return self._left_by_count(step, planned, info)
        # the pace since this attempt began, pauses for evaluation included: calmer than the newest steps alone
        rows = self._reader.steps(after=self._first_step)
        first = next(rows, None)
        last = max(self._reader.steps(after=step - 1), key=lambda row: row.ended_at, default=None)
        if planned is None or first is None or last is None or last.step <= first.step:
            return None
        return max(0.0, planned - step) * (last.ended_at - first.ended_at) / (last.step - first.step)

    def _left_by_count(self, step: int, planned: float | None, info: dict[str, str]) -> float | None:
        first, since = known_number(info, "counted_from_step"), known_number(info, "counted_from")
        if planned is None or first is None or since is None or step <= first:
            return None
        return max(0.0, planned - step) * (self._clock() - since) / (step - first)
