"""Reads a run directory, while the run writes or after. Console, page, exporters and verbs see a run through this."""

from __future__ import annotations

import json
import math
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from volary.errors import RunError
from volary.run.database import counts, histograms, network, spans, traffic, usage
from volary.run.database.counts import CountRow
from volary.run.database.course import contributions, curves, pyramid
from volary.run.database.course.curves import Point
from volary.run.database.course.pyramid import StepView
from volary.run.database.ending import kept_ending
from volary.run.database.histograms import Histogram
from volary.run.database.journal import ATTEMPT, STEP_FIELDS, StepRow
from volary.run.database.network import LayerGraph
from volary.run.database.spans import Span
from volary.run.database.totals import Totals
from volary.run.database.traffic import Traffic
from volary.run.database.usage import UsageView
from volary.run.directory import RunDirectory

PHASES = ("data", "forward", "backward", "exchange", "optimizer")


@dataclass(frozen=True)
class Event:
    """Something that happened. at: seconds since 1970, for display. rank and step are None where they do not apply."""

    id: int
    at: float
    attempt: int
    rank: int | None
    step: int | None
    kind: str
    data: dict[str, Any]


@dataclass(frozen=True)
class Window:
    """Means over some steps of all workers. shares: part of the step's time by phase. slowest_lag: above the mean."""

    step: int
    loss: float
    lr: float
    epoch: float
    samples_per_s: float
    shares: dict[str, float]
    slowest: int
    slowest_lag: float


@dataclass(frozen=True, slots=True)
class MetricPart:
    """A metric at steps `first` to `last`: how many values, their mean, the least and the greatest.

    Values that are not numbers are counted, and nothing else; if all are, the others are None.
    """

    first: int
    last: int
    count: int
    mean: float | None
    least: float | None
    greatest: float | None


_METRIC = """
SELECT MIN(step), MAX(step), COUNT(*), AVG(value), MIN(value), MAX(value) FROM metrics
WHERE name = ? AND step BETWEEN ? AND ? GROUP BY (step - ?) / ? ORDER BY 1"""
# found by skipping from one to the next, not by reading all
_METRIC_NAMES = """
WITH RECURSIVE found(name) AS (
    SELECT MIN(name) FROM metrics
    UNION ALL SELECT (SELECT MIN(name) FROM metrics WHERE name > found.name) FROM found WHERE found.name IS NOT NULL)
SELECT name FROM found WHERE name IS NOT NULL"""
_EARLIER = """
SELECT COALESCE(SUM(lasted), 0.0) FROM (SELECT MAX(at) - MIN(at) AS lasted FROM events WHERE life < ? GROUP BY life)"""
# by name: a run of another version of Volary may have other columns too
_STEP_COLUMNS = ", ".join(STEP_FIELDS)
_EVENT_COLUMNS = "id, at, life, rank, step, kind, data"


class RunReader:
    """A read-only view of the run at `directory`. Raises RunError, at any call, if its database cannot be read."""

    def __init__(self, directory: RunDirectory) -> None:
        self.directory = directory
        self._database = _open(directory.database)

    def __enter__(self) -> RunReader:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._database.close()

    def info(self) -> dict[str, str]:
        """Facts about the run: state, steps planned, steps done, when it started and ended, ..."""
        facts = dict(self._rows("SELECT key, value FROM info"))
        return facts | kept_ending(self.directory.database) if facts.get("state") == "running" else facts

    def state(self) -> str:
        """new, queued, running, finished, stopped, failed, or lost (says running, but nobody writes it)."""
        state = self.info().get("state", "new")
        if state != "finished" and self.directory.is_queued() and not self.directory.is_live():
            return "queued"  # for the first time, or again
        return "lost" if state == "running" and not self.directory.is_live() else state

    def last_step(self) -> int:
        """The newest step that any worker recorded; 0 before the first."""
        ((step,),) = self._rows("SELECT COALESCE(MAX(step), 0) FROM steps")
        return int(step)

    def steps(self, after: int = 0, rank: int | None = None) -> Iterator[StepRow]:
        """Steps beyond `after`, oldest first; of one rank or of all."""
        query, values = f"SELECT {_STEP_COLUMNS} FROM steps WHERE step > ?", [after]
        if rank is not None:
            query, values = query + " AND rank = ?", [after, rank]
        return (StepRow(*map(_number, row)) for row in self._rows(query + " ORDER BY step, rank", values))

    def ranks(self) -> list[int]:
        """The workers that may have recorded steps: those that began the run, those that joined it, and all seen."""
        known = set(range(int(self.info().get("workers", "0"))))
        known |= {rank for (rank,) in self._rows(pyramid.RANKS)} if next(self._rows(pyramid.IS_THERE), None) else set()
        known |= {event.rank for event in self.events(kind="joined") if event.rank is not None}
        known |= {row.rank for row in self.steps(after=self.last_step() - pyramid.BASE)}
        return sorted(known)

    def view(self, first: int, last: int, most: int, rank: int | None = None) -> StepView:
        """Steps `first` to `last` in at most `most` columns: sums, least and greatest values; of one rank or of all.

        Steps as workers number them, who over parameter servers count contributions of their own.
        """
        return pyramid.view(self._rows, self.ranks() if rank is None else [rank], first, last, most)

    def course(self, first: int, last: int | None, most: int, rank: int | None = None) -> StepView:
        """The same over the steps of the run, to which metrics belong, too. last: None: the newest."""
        counted, newest = self.info().get("steps_now"), max(1, self.last_step())
        if counted is None:
            return self.view(max(1, first), newest if last is None else max(1, last), most, rank)
        done = newest, max(1, int(counted))
        return contributions.view(self._rows, self.ranks(), done, max(1, first), last or done[1], most, rank)

    def events(self, after: int = 0, kind: str | None = None) -> Iterator[Event]:
        """Events with an id beyond `after`, oldest first; of one kind or of all."""
        query, values = f"SELECT {_EVENT_COLUMNS} FROM events WHERE id > ?", [str(after)]
        if kind is not None:
            query, values = query + " AND kind = ?", [str(after), kind]
        for number, at, attempt, rank, step, what, data in self._rows(query + " ORDER BY id", values):
            yield Event(number, at, attempt, rank, step, what, json.loads(data))

    def metrics(self) -> dict[str, list[tuple[int, float]]]:
        """Every metric's (step, value) pairs, oldest first."""
        found: dict[str, list[tuple[int, float]]] = {}
        for step, name, value in self._rows("SELECT step, name, value FROM metrics ORDER BY step"):
            found.setdefault(name, []).append((step, _number(value)))
        return found

    def metric_names(self) -> list[str]:
        """The names of all metrics that were recorded."""
        return [name for (name,) in self._rows(_METRIC_NAMES)]

    def metric(self, name: str, first: int, last: int | None, most: int) -> list[MetricPart]:
        """A metric from step `first` to `last` (the newest), both included, in at most `most` parts, oldest first."""
        if last is None:
            ((last,),) = self._rows("SELECT COALESCE(MAX(step), 0) FROM metrics WHERE name = ?", [name])
        width = max(1, -(-(last - first + 1) // max(1, most)))
        return [MetricPart(*row) for row in self._rows(_METRIC, (name, first, last, first, width))]

    def newest(self, name: str) -> float | None:
        """The newest value of a metric; None if it was never recorded."""
        query = "SELECT value FROM metrics WHERE name = ? ORDER BY step DESC LIMIT 1"
        return next((_number(value) for (value,) in self._rows(query, [name])), None)

    def newest_parts(self, name: str) -> tuple[int, dict[str, float]]:
        """Figures of parts of a metric, as `name[3]` and `name[3,5]`, as they were recorded last, and at which step.

        None at step 0, if there are none.
        """
        inside = [f"{name}[", f"{name}\\"]  # "\\" follows "["
        ((step,),) = self._rows("SELECT COALESCE(MAX(step), 0) FROM metrics WHERE name > ? AND name < ?", inside)
        query = "SELECT name, value FROM metrics WHERE name > ? AND name < ? AND step = ?"
        return step, {part: _number(value) for part, value in self._rows(query, [*inside, step])}

    def values_at(self, name: str, steps: Sequence[int]) -> dict[int, float]:
        """A metric's value by step, of those of `steps` at which it was recorded."""
        query = f"SELECT step, value FROM metrics WHERE name = ? AND step IN ({', '.join('?' * len(steps))})"
        return {step: _number(value) for step, value in self._rows(query, [name, *steps])}

    def recorded_steps(self) -> list[int]:
        """The steps that have spans, in order; none in a run of an older version."""
        there = next(self._rows(spans.IS_THERE), None)
        return [step for (step,) in self._rows(spans.STEPS)] if there else []

    def spans(self, first: int, last: int, rank: int | None = None) -> Iterator[Span]:
        """Spans of the recorded steps `first` to `last`, both included, by when they began; of one rank or of all."""
        return (Span(*row) for row in self._rows(*spans.select(first, last, rank)))

    def network(self) -> LayerGraph | None:
        """The layers of the network; None if they were not recorded."""
        there = next(self._rows(network.IS_THERE), None)
        found = next(self._rows(network.ALL), None) if there else None
        return network.read(*found) if found else None

    def counts(self) -> list[CountRow]:
        """Counts by kind, worker, server and value; none in a run of an older version."""
        there = next(self._rows(counts.IS_THERE), None)
        return [CountRow(*row) for row in self._rows(counts.ALL)] if there else []

    def traffic(self) -> list[Traffic]:
        """Bytes that all workers put on and took off the wire, most sent first; none if the run did not keep them."""
        there = next(self._rows(traffic.IS_THERE), None)
        return [Traffic(*row) for row in self._rows(traffic.ALL)] if there else []

    def counts_over_time(self) -> list[tuple[int, str, int, int]]:
        """(seconds since 1970, kind, count, sum of values) of what was counted then, oldest first."""
        there = next(self._rows(counts.OVER_TIME_IS_THERE), None)
        return list(self._rows(counts.OVER_TIME)) if there else []

    def usage(self, most: int) -> UsageView | None:
        """Usage by workers and machines, in at most `most` columns of equal time; None if nothing was measured."""
        if next(self._rows(usage.IS_THERE), None) is None:
            return None
        ((start, end),) = self._rows(usage.bounds())
        if start is None:
            return None
        width_s = usage.width_s(end - start, most)
        columns = min(most, int((end - start) / width_s) + 1)
        return usage.viewed(start, width_s, columns, self._rows(*usage.select(start, width_s)))

    def magnitudes(self) -> Iterator[tuple[int, str, str, float]]:
        """(step, kind, parameter, mean magnitude) of weights and updates, wherever histograms were made."""
        there = next(self._rows(histograms.IS_THERE), None)
        return self._rows(histograms.MAGNITUDES) if there else iter(())

    def histograms(self, name: str) -> Iterator[Histogram]:
        """The histograms of one parameter, oldest first."""
        there = next(self._rows(histograms.IS_THERE), None)
        return histograms.read(self._rows(histograms.OF_NAME, [name])) if there else iter(())

    def curve(self, name: str, points: int) -> list[Point]:
        """How one of `volary.run.database.course.curves.MEASURED` went, in at most so many points."""
        last = self.last_step()
        if "steps_now" in self.info():
            return curves.of_view(name, self.course(1, None, points)) if last else []
        rows = self._rows(curves.select(name), [min(points, last), last]) if last else ()
        return [Point(*map(_number, row)) for row in rows]

    def earlier_s(self, attempt: int) -> float:
        """Seconds that the restart attempts before `attempt` took, each from its start to its last sign."""
        ((seconds,),) = self._rows(_EARLIER, [attempt])
        return float(seconds)

    def last_sign(self) -> float:
        """The time of the newest record, in seconds since 1970: an event or a step."""
        ((event,),) = self._rows("SELECT COALESCE(MAX(at), 0.0) FROM (SELECT at FROM events ORDER BY id DESC LIMIT 1)")
        return max(float(event), *(row.ended_at for row in self.steps(after=self.last_step() - 1)), 0.0)

    def totals(self) -> Totals:
        """The totals of the run so far."""
        groups = self.view(1, max(1, self.last_step()), 1).groups
        return Totals(
            samples=sum(group.samples for group in groups),
            sent_bytes=sum(group.sent_bytes for group in groups),
            received_bytes=sum(group.received_bytes for group in groups),
            busy_s=sum(group.step_s for group in groups) / max(1, len(groups)),
        )

    def window(self, steps: int = 20) -> Window | None:
        """Means over the newest `steps` steps; None before the first."""
        rows = self.recent(steps)
        return _window(rows) if rows else None

    def recent(self, steps: int) -> list[StepRow]:
        """The newest `steps` of each worker, oldest first.

        Where workers count contributions of their own, what ended since as many of the newest worker's began: others
        may be slower, or have left.
        """
        if "steps_now" not in self.info():
            return list(self.steps(after=self.last_step() - steps))
        query = f"SELECT {_STEP_COLUMNS} FROM steps WHERE rank = ? ORDER BY step DESC LIMIT ?"
        found = [[StepRow(*map(_number, row)) for row in self._rows(query, [rank, steps])] for rank in self.ranks()]
        newest = max(filter(None, found), key=lambda rows: rows[0].ended_at, default=None)
        if newest is None:
            return []
        began = newest[-1].ended_at - newest[-1].step_s
        return [row for rows in found for row in reversed(rows) if row.ended_at >= began]

    def _rows(self, query: str, values: Sequence[Any] = ()) -> Iterator[Any]:
        try:
            for row in self._database.execute(query, values):  # noqa: UP028 (yield from would close the cursor late)
                yield row
        except sqlite3.DatabaseError as error:
            raise RunError(f"{self.directory.database}: not a readable run database: {error}") from None


def _number(value: Any) -> Any:
    return math.nan if value is None else value  # SQLite has no NaN: it keeps NULL


def _open(path: Path) -> sqlite3.Connection:
    try:
        return _connect(path, "mode=ro")
    except sqlite3.OperationalError:
        pass  # perhaps a read-only copy, which has no place for the write-ahead files
    except sqlite3.DatabaseError as error:
        raise RunError(f"{path}: not a readable run database: {error}") from None
    try:
        return _connect(path, "mode=ro&immutable=1")
    except sqlite3.DatabaseError as error:
        raise RunError(f"{path}: not a readable run database: {error}") from None


def _connect(path: Path, how: str) -> sqlite3.Connection:
    database = sqlite3.connect(f"{path.as_uri()}?{how}", uri=True, timeout=10, check_same_thread=False)
    try:
        database.execute("SELECT 1 FROM info LIMIT 1").fetchall()
    except sqlite3.DatabaseError:
        database.close()
        raise
    except UnicodeDecodeError:  # SQLite's message would have quoted the damaged part
        database.close()
        raise sqlite3.DatabaseError("malformed database schema") from None
    return database


def attempt_in(info: Mapping[str, str], *, before: int = -1) -> int:
    """The number of the newest attempt, of the facts about a run that `RunReader.info` has. before: the first one."""
    number = info.get(ATTEMPT, "")
    return int(number) if number.isdecimal() else before


def _window(rows: list[StepRow]) -> Window:
    newest = max(rows, key=lambda row: (row.step, -row.rank))
    ranks = {row.rank for row in rows}
    total = sum(row.step_s for row in rows) or 1e-9
    shares = {phase: sum(getattr(row, f"{phase}_s") for row in rows) / total for phase in PHASES}
    # a rank that waits for others is not slow: its own work is what counts
    work = {rank: _mean([row.step_s - row.exchange_s for row in rows if row.rank == rank]) for rank in ranks}
    slowest = max(work, key=lambda rank: work[rank])
    return Window(
        step=newest.step,
        loss=newest.loss,
        lr=newest.lr,
        epoch=newest.epoch,
        samples_per_s=sum(row.samples for row in rows) / (total / len(ranks)),
        shares=shares,
        slowest=slowest,
        slowest_lag=work[slowest] / (_mean(list(work.values())) or 1e-9) - 1,
    )


def _mean(values: list[float]) -> float:
    return sum(values) / len(values)
