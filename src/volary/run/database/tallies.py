"""Tallies in a run's database: histograms of what is too frequent to be an event each, by worker and server."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields

NOBODY = -1  # SQLite tells NULLs of a key apart, so a tally that is no worker's or no server's has a number for it


@dataclass(frozen=True, slots=True)
class Tally:
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
CREATE TABLE IF NOT EXISTS tallies (
    kind TEXT NOT NULL, rank INTEGER NOT NULL, server INTEGER NOT NULL, value INTEGER NOT NULL, count INTEGER NOT NULL,
    PRIMARY KEY (kind, rank, server, value)) WITHOUT ROWID;
"""
COURSE_PART_S = 10  # how finely it is kept how tallies went
_COURSE = """
CREATE TABLE IF NOT EXISTS tally_course (
    part INTEGER NOT NULL, kind TEXT NOT NULL, count INTEGER NOT NULL, total INTEGER NOT NULL, PRIMARY KEY (part, kind)
    ) WITHOUT ROWID;
"""
SCHEMA += _COURSE
_COLUMNS = ", ".join(f.name for f in fields(Tally))
ADD = (
    f"INSERT INTO tallies ({_COLUMNS}) VALUES ({', '.join('?' * len(fields(Tally)))}) "
    "ON CONFLICT DO UPDATE SET count = count + excluded.count"
)
IS_THERE = "SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = 'tallies'"  # not in a run of an older version
ALL = f"SELECT {_COLUMNS} FROM tallies ORDER BY kind, rank, server, value"
ADD_TO_COURSE = (
    "INSERT INTO tally_course VALUES (?, ?, ?, ?) "
    "ON CONFLICT DO UPDATE SET count = count + excluded.count, total = total + excluded.total"
)
COURSE_IS_THERE = "SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = 'tally_course'"
# at most so many parts: a run of any length is read at once
COURSE = f"""
SELECT part * {COURSE_PART_S}, kind, SUM(count), SUM(total) FROM tally_course
    GROUP BY part / (1 + ((SELECT MAX(part) - MIN(part) FROM tally_course) / 500)), kind ORDER BY part
"""


def course_of(found: Iterable[Tally], at: float) -> list[tuple[int, str, int, int]]:
    """What is counted at a time, in seconds since 1970, as rows of the course: by kind, how often, and the sum."""
    sums: dict[str, tuple[int, int]] = {}
    for tally in found:
        count, total = sums.get(tally.kind, (0, 0))
        sums[tally.kind] = count + tally.count, total + tally.count * tally.value
    return [(int(at // COURSE_PART_S), kind, count, total) for kind, (count, total) in sums.items()]
