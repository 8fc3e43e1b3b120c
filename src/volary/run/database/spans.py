"""Spans in a run's database: what a worker did within a step, and when. The newest are kept, up to a number."""

from __future__ import annotations

from typing import NamedTuple

SPANS_KEPT = 400_000  # of a run, about 25 MB


class Span(NamedTuple):
    """A stretch of time of one worker, in seconds since 1970 on its machine's clock. size_bytes: what travelled.

    kind: what it is (see `volary.train.recording.spans.Spans.add`). name: of the bucket, the layer or the phase.
    """

    rank: int
    step: int
    kind: str
    name: str
    start_s: float
    end_s: float
    size_bytes: int


# the table bounds itself, whoever writes it: ids count up, and those of a step that was taken back are used again
SCHEMA = f"""
CREATE TABLE IF NOT EXISTS spans (
    id INTEGER PRIMARY KEY, rank INTEGER NOT NULL, step INTEGER NOT NULL, kind TEXT NOT NULL, name TEXT NOT NULL,
    start_s REAL NOT NULL, end_s REAL NOT NULL, size_bytes INTEGER NOT NULL);
CREATE TRIGGER IF NOT EXISTS spans_kept AFTER INSERT ON spans
    BEGIN DELETE FROM spans WHERE id <= NEW.id - {SPANS_KEPT}; END;
"""
_COLUMNS = ", ".join(Span._fields)
INSERT = f"INSERT INTO spans ({_COLUMNS}) VALUES ({', '.join('?' * len(Span._fields))})"
IS_THERE = "SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = 'spans'"  # not in a run of an older version
STEPS = "SELECT DISTINCT step FROM spans ORDER BY step"


def select(first: int, last: int, rank: int | None) -> tuple[str, list[int]]:
    """The query, with its values, for the spans of steps `first` to `last`, both included, by when they began."""
    query, values = f"SELECT {_COLUMNS} FROM spans WHERE step BETWEEN ? AND ?", [first, last]
    if rank is not None:
        query, values = query + " AND rank = ?", [first, last, rank]
    return query + " ORDER BY start_s, id", values
