"""Tallies in a run's database: histograms of what is too frequent to be an event each, by worker and server."""

from __future__ import annotations

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
_COLUMNS = ", ".join(f.name for f in fields(Tally))
ADD = (
    f"INSERT INTO tallies ({_COLUMNS}) VALUES ({', '.join('?' * len(fields(Tally)))}) "
    "ON CONFLICT DO UPDATE SET count = count + excluded.count"
)
IS_THERE = "SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = 'tallies'"  # not in a run of an older version
ALL = f"SELECT {_COLUMNS} FROM tallies ORDER BY kind, rank, server, value"
