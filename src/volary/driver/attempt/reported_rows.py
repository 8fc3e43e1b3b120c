"""Reports that workers send with their beats become rows of the run's database."""

from __future__ import annotations

import math
from typing import Annotated, Any, TypeVar

import msgspec

from volary.comm.control.errors import BadMessage
from volary.run.database.counts import CountRow
from volary.run.database.histograms import Histogram
from volary.run.database.journal import STEP_FIELDS, StepRow
from volary.run.database.spans import Span
from volary.run.database.traffic import Traffic
from volary.run.database.usage import Usage

_Wanted = TypeVar("_Wanted")
_Whole = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]
_Server = Annotated[int, msgspec.Meta(ge=-1, le=2**31)]


def step_row(values: list[float | None]) -> StepRow:
    """The values of `STEP_FIELDS` of a step, None for one that is no number. Raises BadMessage."""
    if len(values) != len(STEP_FIELDS):
        raise BadMessage(f"a step has {len(values)} values; expected {len(STEP_FIELDS)}")
    numbers = [math.nan if value is None else value for value in values]
    return StepRow(*numbers)  # type: ignore[arg-type]  # SQLite keeps whole numbers whole


def spans(rank: int, rows: list[Any]) -> list[Span]:
    """Stretches of time: step, kind, name, start and end in seconds, and bytes of each. Raises BadMessage."""
    found = [Span(rank, *values) for values in converted(rows, list[tuple[_Whole, str, str, float, float, _Whole]])]
    if not all(math.isfinite(span.start_s + span.end_s) for span in found):  # SQLite would make it NULL
        raise BadMessage(f"rank {rank} says a span that has no beginning or no end")
    return found


def usage(rank: int, rows: list[Any]) -> list[Usage]:
    """The use of a worker's machine: time, name and value of each. Raises BadMessage."""
    found = [Usage(at, rank, name, value) for at, name, value in converted(rows, list[tuple[float, str, float]])]
    if not all(math.isfinite(one.at + one.value) for one in found):
        raise BadMessage(f"rank {rank} says a usage that is no number")
    return found


def histograms(rank: int, step: int, rows: list[Any]) -> list[Histogram]:
    """How values are spread after a step, by tensor. Raises BadMessage."""
    kind = list[tuple[str, str, float, float, float, list[_Whole]]]
    found = [
        Histogram(step, kind, name, low, high, magnitude, tuple(counts))
        for kind, name, low, high, magnitude, counts in converted(rows, kind)
    ]
    if not all(math.isfinite(one.low + one.high + one.magnitude) for one in found):
        raise BadMessage(f"rank {rank} says a histogram without bounds")
    return found


def traffic(rows: list[Any]) -> list[Traffic]:
    """Bytes and messages that were sent and received since the last report, by codec and route. Raises BadMessage."""
    return [Traffic(*row) for row in converted(rows, list[tuple[str, str, _Whole, _Whole, _Whole]])]


def count_rows(rank: int, rows: list[Any]) -> list[CountRow]:
    """Counts of a worker: kind, server, value and how often. Raises BadMessage."""
    found = converted(rows, list[tuple[str, _Server, _Whole, _Whole]])
    return [CountRow(kind, rank, server, value, count) for kind, server, value, count in found]


def converted(message: Any, kind: type[_Wanted]) -> _Wanted:
    """A message of plain values as a `kind`. Raises BadMessage."""
    try:
        return msgspec.convert(message, kind)
    except msgspec.ValidationError as error:
        raise BadMessage(str(error)) from None
