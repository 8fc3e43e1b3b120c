"""One run told as a whole: what `volary show` prints."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, field
from typing import Any

from volary.errors import RunError
from volary.monitor.curves import Curve, measured
from volary.monitor.digest import Digest, Follower
from volary.monitor.tables.roster import ListedWorker, roster
from volary.monitor.wording import MEMBERSHIP, membership, trouble
from volary.run.checkpoints import Checkpoints
from volary.run.database.counts import CountRow
from volary.run.database.journal import StepRow
from volary.run.database.reader import PHASES, Event, RunReader, attempt_in
from volary.run.database.traffic import Traffic
from volary.run.directory import RunDirectory
from volary.run.tags import Tags, read_tags

RECENT_STEPS = 200
CURVE_POINTS = 120


@dataclass(frozen=True)
class WorkerTimes:
    """Means over the newest steps of one worker: seconds a step by phase, bytes a step."""

    rank: int
    steps: int
    step_s: float
    phases_s: dict[str, float]
    sent_bytes: float
    received_bytes: float


@dataclass(frozen=True)
class CheckpointStatus:
    """A checkpoint. metric: what an evaluation found at its step, if there was one.

    condition: `there` (its files exist), `whole` (verified), or what is wrong with it.
    """

    step: int
    metric: float | None
    condition: str


@dataclass(frozen=True)
class Account:
    """A run: its newest digest and what only a closer look tells.

    metrics: rows of (step, values), oldest first. curves: the loss and what evaluations measured, from the first step
    on. ways: the newest choice of how layers travel, if there was one.
    counts: what was counted. members: events of workers and servers that came or went on the way. roster: who
    is in the run, while it runs. corrupt: by split,
    why each sample that was skipped could not be read. labels: its tags and the note.
    changes: of settings, when it was resumed. reads: by epoch, how many samples came from each level of the cache, and
    how many calls of a store were made again. decoding: of each source, who decodes its samples in the first worker,
    and why. traffic: of all workers, by codec and route.
    """

    digest: Digest
    started_at: float | None
    metrics: list[tuple[int, dict[str, float]]]
    workers: list[WorkerTimes]
    checkpoints: list[CheckpointStatus]
    logs: list[str]
    ways: Event | None = None
    counts: list[CountRow] = field(default_factory=list)
    members: list[Event] = field(default_factory=list)
    corrupt: dict[str, list[str]] = field(default_factory=dict)
    curves: list[Curve] = field(default_factory=list)
    labels: Tags = field(default_factory=Tags)
    changes: list[Event] = field(default_factory=list)
    reads: dict[int, dict[str, int]] = field(default_factory=dict)
    decoding: list[dict[str, Any]] = field(default_factory=list)
    traffic: list[Traffic] = field(default_factory=list)
    roster: list[ListedWorker] = field(default_factory=list)

    def as_dict(self) -> dict[str, Any]:
        """Return everything in plain values, for `--json`."""
        digest = self.digest
        return {
            "run": str(digest.directory.path),
            "name": digest.directory.name,
            **asdict(self.labels),
            "state": digest.state,
            "session": asdict(digest.session),
            "step": digest.step,
            "steps_planned": digest.steps_planned,
            "epoch": digest.window.epoch if digest.window else None,
            "epochs_planned": digest.epochs_planned,
            "batch_size": digest.batch_size,
            "started_at": self.started_at,
            "elapsed_s": digest.elapsed_s,
            "samples_per_s": digest.window.samples_per_s if digest.window else None,
            "compute": asdict(digest.compute) if digest.compute else None,
            "metric": digest.metric,
            "written": digest.written.data if digest.written else None,
            "best": asdict(digest.best) if digest.best else None,
            "metrics": [{"step": step, "values": values} for step, values in self.metrics],
            "curves": [curve.as_dict() for curve in self.curves],
            "workers": [asdict(worker) for worker in self.workers],
            "checkpoints": [asdict(kept) for kept in self.checkpoints],
            "warnings": [{"at": event.at, "text": trouble(event)} for event in digest.warnings],
            "ways": self.ways.data if self.ways else None,
            "counts": [asdict(one) for one in self.counts],
            "members": [{"at": event.at, "text": membership(event)} for event in self.members],
            "roster": [asdict(one) for one in self.roster],
            "corrupt": self.corrupt,
            "changes": [{"step": event.step, **event.data} for event in self.changes],
            "reads": [{"epoch": epoch, **levels} for epoch, levels in self.reads.items()],
            "decoding": self.decoding,
            "traffic": [one._asdict() | {"saved": one.saved} for one in self.traffic],
            "message": digest.message,
            "logs": self.logs,
        }


def account(directory: RunDirectory, verify: bool = False, *, courses: bool = True) -> Account:
    """Read the run. Raises RunError.

    verify: compare checkpoints with their checksums, which reads them whole. courses: also read how metrics and steps
    went, which takes as long as there are many.
    """
    try:
        return _account(directory, verify, courses)
    except (ValueError, TypeError) as error:
        raise RunError(f"{directory.database}: damaged or of another version: {error}") from None


def _account(directory: RunDirectory, verify: bool, courses: bool) -> Account:
    with closing(Follower(directory)) as follower, RunReader(directory) as reader:
        digest = follower.look()
        recent = reader.recent(RECENT_STEPS)
        metrics, started = reader.metrics() if courses else {}, reader.info().get("started_at")
        ways, counts = list(reader.events(kind="ways")), reader.counts()
        members = [event for event in reader.events() if event.kind in MEMBERSHIP]
        corrupt = _corrupt(reader.events(kind="corrupt_sample"))
        changes, traffic = _changes(reader), reader.traffic()
        reads, decoding = _reads(reader.events(kind="reads")), _decoding(list(reader.events(kind="decoding")))
        curves = measured(reader, CURVE_POINTS, own_loop=bool(digest.session.own_loop)) if courses else []
        checkpoints = kept(Checkpoints(directory.checkpoints), reader, digest.metric, verify)
        here = _roster(digest, reader, recent)
    return Account(
        digest=digest,
        started_at=float(started) if started else None,
        metrics=_by_step(metrics),
        workers=worker_times(recent),
        checkpoints=checkpoints,
        logs=[str(path) for path in sorted(directory.logs.glob("*.log"))],
        ways=ways[-1] if ways else None,
        counts=counts,
        members=members,
        corrupt=corrupt,
        curves=curves,
        labels=read_tags(directory),
        changes=changes,
        reads=reads,
        decoding=decoding,
        traffic=traffic,
        roster=here,
    )


def _roster(digest: Digest, reader: RunReader, recent: Sequence[StepRow]) -> list[ListedWorker]:
    if digest.state != "running":
        return []
    info = reader.info()
    attempt = attempt_in(info, before=0)
    events = (event for event in reader.events() if event.attempt == attempt)
    return roster(info, events, recent, starting=bool(digest.starting))


def _corrupt(events: Iterable[Event]) -> dict[str, list[str]]:
    """Each sample once: every attempt finds them again."""
    found: dict[str, dict[str, None]] = {}
    for event in events:
        found.setdefault(str(event.data.get("split")), {})[str(event.data.get("reason"))] = None
    return {split: sorted(reasons) for split, reasons in found.items()}


def _reads(events: Iterable[Event]) -> dict[int, dict[str, int]]:
    """The reads of all workers together; of an epoch that a worker has read several times, the newest."""
    newest = {(int(event.data["epoch"]), event.rank): event.data for event in events}
    found: dict[int, dict[str, int]] = {}
    for (epoch, _), data in sorted(newest.items(), key=lambda item: item[0][0]):
        levels = found.setdefault(epoch, dict.fromkeys(("memory", "disk", "source", "retries"), 0))
        for level in levels:
            levels[level] += int(data[level])
    return found


def _decoding(events: Sequence[Event]) -> list[dict[str, Any]]:
    """The newest of each source, as the first worker said it."""
    first = min((event.rank or 0 for event in events), default=0)
    newest = {int(event.data["source"]): event.data for event in events if (event.rank or 0) == first}
    return [dict(data) for _, data in sorted(newest.items())]


def _changes(reader: RunReader) -> list[Event]:
    """The changes that were made: an attempt whose workers refused them took them back."""
    taken_back = {event.attempt for event in reader.events(kind="unchanged")}
    return [event for event in reader.events(kind="changed") if event.attempt not in taken_back]


def worker_times(rows: Iterable[StepRow]) -> list[WorkerTimes]:
    """The times of each worker, by rank."""
    by_rank: dict[int, list[StepRow]] = {}
    for row in rows:
        by_rank.setdefault(row.rank, []).append(row)
    return [_times(rank, by_rank[rank]) for rank in sorted(by_rank)]


def kept(checkpoints: Checkpoints, reader: RunReader, metric: str, verify: bool) -> list[CheckpointStatus]:
    """The checkpoints there are, oldest first, with what evaluations found: a manifest has that of the best alone."""
    steps = checkpoints.steps()
    found = reader.values_at(metric, steps)
    return [CheckpointStatus(step, found.get(step), _condition(checkpoints, step, verify)) for step in steps]


def _condition(checkpoints: Checkpoints, step: int, verify: bool) -> str:
    try:
        manifest = checkpoints.verify(step) if verify else checkpoints.manifest(step)
    except RunError as error:
        return f"damaged: {error}"
    if missing := checkpoints.missing(manifest):
        return f"damaged: {', '.join(missing)} missing"
    return "whole" if verify else "there"


def _times(rank: int, rows: list[StepRow]) -> WorkerTimes:
    def mean(column: str) -> float:
        return float(sum(getattr(row, column) for row in rows)) / len(rows)

    phases = {phase: mean(f"{phase}_s") for phase in PHASES}
    return WorkerTimes(rank, len(rows), mean("step_s"), phases, mean("sent_bytes"), mean("received_bytes"))


def _by_step(metrics: dict[str, list[tuple[int, float]]]) -> list[tuple[int, dict[str, float]]]:
    by_step: dict[int, dict[str, float]] = {}
    for name, pairs in metrics.items():
        for step, value in pairs:
            by_step.setdefault(step, {})[name] = value
    return sorted(by_step.items())
