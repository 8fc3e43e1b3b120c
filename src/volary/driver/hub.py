"""The driver's end of the heartbeats: what workers say goes to the watch and into the journal."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, TypeVar

import msgspec

from volary.comm.errors import BadMessage
from volary.comm.service import CLOSE
from volary.driver.watch import Watch
from volary.run.journal import STEP_FIELDS, Journal, StepRow

_Struct = TypeVar("_Struct", bound=msgspec.Struct)


class Beat(msgspec.Struct):
    """What a worker sends: where it is, and what it has to say since the last beat."""

    step: int
    phase: str
    progress: int
    longest_s: float
    rows: list[list[float | None]]
    said: list[dict[str, Any]]
    bye: str = ""
    stack: str = ""


class Hello(msgspec.Struct):
    """How a worker introduces itself."""

    rank: int
    pid: int
    host: str


class Hub:
    """The service "pulse" of a run's server (see volary.comm.service)."""

    def __init__(self, watch: Watch, journal: Journal) -> None:
        self.watch = watch
        self._journal = journal

    def opened(self, peer: int, hello: dict[str, Any], now: float) -> Iterator[tuple[int, Any]]:
        """A worker has come."""
        who = _converted(hello, Hello)
        if not self.watch.joined(peer, who.rank, who.pid, who.host, now):
            yield peer, {"end": f"there is no place for a rank {who.rank} in this run"}
            yield peer, CLOSE

    def received(self, peer: int, message: Any, now: float) -> Iterator[tuple[int, Any]]:
        """A beat has come."""
        beat = _converted(message, Beat)
        worker = self.watch.worker_at(peer)
        if worker is None:
            return
        fields = {"step": beat.step, "phase": beat.phase, "progress": beat.progress, "longest_s": beat.longest_s}
        more = {name: value for name in ("bye", "stack") if (value := getattr(beat, name))}
        self.watch.heard(peer, fields | more, now)
        if beat.rows:
            self._journal.steps([_row(row) for row in beat.rows])
        for said in beat.said:
            self._write(worker.rank, said)
        yield from ()

    def closed(self, peer: int, now: float) -> Iterator[tuple[int, Any]]:
        """A worker has gone."""
        self.watch.left(peer)
        yield from ()

    def tick(self, now: float) -> Iterator[tuple[int, Any]]:
        """Time has passed."""
        for peer in self.watch.tick(now):
            yield peer, {"stack": True}
        for suspect in self.watch.suspects:
            worker = self.watch.workers[suspect.rank]
            reason = f"rank {suspect.rank} (host {worker.host}) {suspect.sentence}, in {worker.phase}"
            self._journal.event("suspect", suspect.rank, worker.step, reason=reason)
        self.watch.suspects.clear()

    def _write(self, rank: int, said: dict[str, Any]) -> None:
        match said:
            case {"event": str(kind), "step": int(step), "data": dict(data)}:
                self._journal.event(kind, rank, step, **data)
            case {"metrics": dict(values), "step": int(step)}:
                self._journal.metrics(step, values)
            case {"note": dict(facts)}:
                self._journal.note(**facts)
            case _:
                raise BadMessage(f"rank {rank} says something unknown: {sorted(said)}")


def _row(values: list[float | None]) -> StepRow:
    if len(values) != len(STEP_FIELDS):
        raise BadMessage(f"a step has {len(values)} values; expected {len(STEP_FIELDS)}")
    numbers = [math.nan if value is None else value for value in values]
    return StepRow(*numbers)  # type: ignore[arg-type]  # SQLite keeps whole numbers whole


def _converted(message: Any, kind: type[_Struct]) -> _Struct:
    try:
        return msgspec.convert(message, kind)
    except msgspec.ValidationError as error:
        raise BadMessage(str(error)) from None
