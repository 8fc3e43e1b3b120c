"""Counts of what is too frequent to be an event each, in a run's database: by value, worker and server."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields

NOBODY = -1  # SQLite tells NULLs of a key apart, so a count that is no worker's or no server's has a number for it


@dataclass(frozen=True, slots=True)
class CountRow:
    """How often something happened. kind: what; value: how much of it, as in a histogram.

    Kinds: `staleness` (value: updates between the parameters a contribution was computed with and its own), `wait`
    (value: milliseconds, rounded up to a power of 2), and `late`, `dropped`, `stolen`, `refused` (value: 0).
    """

    kind: str
    rank: int
    server: int
    value: int
    count: int


SCHEMA = """
CREATE TABLE IF NOT EXISTS counts (
    kind TEXT NOT NULL, rank INTEGER NOT NULL, server INTEGER NOT NULL, value INTEGER NOT NULL, count INTEGER NOT NULL,
    PRIMARY KEY (kind, rank, server, value)) WITHOUT ROWID;
"""
PART_S = 10  # counts over time are kept for each so many seconds
_OVER_TIME = """
CREATE TABLE IF NOT EXISTS counts_over_time (
    part INTEGER NOT NULL, kind TEXT NOT NULL, count INTEGER NOT NULL, total INTEGER NOT NULL, PRIMARY KEY (part, kind)
    ) WITHOUT ROWID;
"""
SCHEMA += _OVER_TIME
_COLUMNS = ", ".join(f.name for f in fields(CountRow))
ADD = (
    f"INSERT INTO counts ({_COLUMNS}) VALUES ({', '.join('?' * len(fields(CountRow)))}) "
    "ON CONFLICT DO UPDATE SET count = count + excluded.count"
)
IS_THERE = "SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = 'counts'"  # not in a run of an older version
ALL = f"SELECT {_COLUMNS} FROM counts ORDER BY kind, rank, server, value"
ADD_OVER_TIME = (
    "INSERT INTO counts_over_time VALUES (?, ?, ?, ?) "
    "ON CONFLICT DO UPDATE SET count = count + excluded.count, total = total + excluded.total"
)
OVER_TIME_IS_THERE = "SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = 'counts_over_time'"
# at most so many parts: a run of any length is read at once
OVER_TIME = f"""
SELECT part * {PART_S}, kind, SUM(count), SUM(total) FROM counts_over_time
    GROUP BY part / (1 + ((SELECT MAX(part) - MIN(part) FROM counts_over_time) / 500)), kind ORDER BY part
"""


def over_time(found: Iterable[CountRow], at: float) -> list[tuple[int, str, int, int]]:
    """Sum up counts at a time, in seconds since 1970, as rows: by kind, how often, and the sum."""
    sums: dict[str, tuple[int, int]] = {}
    for one in found:
        count, total = sums.get(one.kind, (0, 0))
        sums[one.kind] = count + one.count, total + one.count * one.value
    return [(int(at // PART_S), kind, count, total) for kind, (count, total) in sums.items()]
