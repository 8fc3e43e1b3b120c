"""Usage by workers and machines, in a run's database: processors, memory, network, GPUs, queues; the newest."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

USAGE_KEPT = 400_000  # of a run, about 20 MB


class Usage(NamedTuple):
    """A value at a time, in seconds since 1970. rank: the worker that measured it, of itself or of its machine.

    name: one of `volary.run.machine.usage`, or `queue_` and what waits in it.
    """

    at: float
    rank: int
    name: str
    value: float


SCHEMA = f"""
CREATE TABLE IF NOT EXISTS usage (
    id INTEGER PRIMARY KEY, at REAL NOT NULL, rank INTEGER NOT NULL, name TEXT NOT NULL, value REAL NOT NULL);
CREATE TRIGGER IF NOT EXISTS usage_kept AFTER INSERT ON usage
    BEGIN DELETE FROM usage WHERE id <= NEW.id - {USAGE_KEPT}; END;
"""
_COLUMNS = ", ".join(Usage._fields)
INSERT = f"INSERT INTO usage ({_COLUMNS}) VALUES ({', '.join('?' * len(Usage._fields))})"
IS_THERE = "SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = 'usage'"  # not in a run of an older version
_BOUNDS = "SELECT MIN(at), MAX(at) FROM usage"


@dataclass(frozen=True)
class UsageView:
    """Means over `width_s` seconds each, the first of them from `start` on, `columns` in all.

    values: by name and rank, of each column; None where nothing was measured.
    """

    start: float
    width_s: float
    columns: int
    values: dict[str, dict[int, list[float | None]]]


def bounds() -> str:
    """The query for the first and the last time."""
    return _BOUNDS


def width_s(seconds: float, most: int) -> float:
    """Seconds of a column: each worker has looked in every column, though it looks ever more rarely."""
    return max(4.0, min(30.0, seconds / 60), seconds / most)


def select(start: float, width_s: float) -> tuple[str, list[float]]:
    """The query, with its values, for (name, rank, column, mean)."""
    return (
        "SELECT name, rank, CAST((at - ?) / ? AS INTEGER) AS part, AVG(value) FROM usage GROUP BY name, rank, part",
        [start, width_s],
    )


def viewed(start: float, width_s: float, columns: int, rows: Iterable[tuple[str, int, int, float]]) -> UsageView:
    """Arrange the query's rows in columns."""
    values: dict[str, dict[int, list[float | None]]] = {}
    for name, rank, part, mean in rows:
        of_rank = values.setdefault(name, {}).setdefault(rank, [None] * columns)
        of_rank[min(part, columns - 1)] = mean
    return UsageView(start, width_s, columns, values)
