"""Bytes on the wire by codec and route, in a run's database: by worker, from the first step on."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple


class Traffic(NamedTuple):
    """Bytes that one worker sent and received by a codec and a route.

    codec: `none` for values as they are, and for what is not gradients. plain_bytes: what the same values would have
    taken, sent and received, as they are.
    """

    codec: str
    route: str
    sent_bytes: int
    received_bytes: int
    plain_bytes: int

    @property
    def saved(self) -> float:
        """The share of the plain bytes that did not travel; negative if more did."""
        return 1 - (self.sent_bytes + self.received_bytes) / self.plain_bytes if self.plain_bytes else 0.0


SCHEMA = """
CREATE TABLE IF NOT EXISTS traffic (
    rank INTEGER NOT NULL, codec TEXT NOT NULL, route TEXT NOT NULL, sent_bytes INTEGER NOT NULL,
    received_bytes INTEGER NOT NULL, plain_bytes INTEGER NOT NULL, PRIMARY KEY (rank, codec, route)) WITHOUT ROWID;
"""
ADD = """
INSERT INTO traffic VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT DO UPDATE SET sent_bytes = sent_bytes + excluded.sent_bytes,
    received_bytes = received_bytes + excluded.received_bytes, plain_bytes = plain_bytes + excluded.plain_bytes
"""
IS_THERE = "SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = 'traffic'"  # not in a run of an older version
ALL = """
SELECT codec, route, SUM(sent_bytes), SUM(received_bytes), SUM(plain_bytes) FROM traffic
    GROUP BY codec, route ORDER BY 3 DESC, 1, 2
"""


def added(*parts: Iterable[Traffic]) -> tuple[Traffic, ...]:
    """All of them together, a row for each codec and route."""
    found: dict[tuple[str, str], Traffic] = {}
    for one in (one for part in parts for one in part):
        old = found.get((one.codec, one.route))
        found[one.codec, one.route] = one if old is None else _both(old, one)
    return tuple(found.values())


def totals(rows: Iterable[Traffic]) -> tuple[int, int]:
    """The bytes that all of them sent, and that they received."""
    found = list(rows)
    return sum(one.sent_bytes for one in found), sum(one.received_bytes for one in found)


def since(now: Iterable[Traffic], before: Iterable[Traffic]) -> list[list[str | int]]:
    """Subtract `before`; return plain values in the order of the fields, without empty rows."""
    old = {(one.codec, one.route): one for one in before}
    rows = (_both(one, old[key], -1) if (key := (one.codec, one.route)) in old else one for one in now)
    return [list(one) for one in rows if one.sent_bytes or one.received_bytes]


def _both(one: Traffic, other: Traffic, sign: int = 1) -> Traffic:
    return Traffic(
        one.codec,
        one.route,
        one.sent_bytes + sign * other.sent_bytes,
        one.received_bytes + sign * other.received_bytes,
        one.plain_bytes + sign * other.plain_bytes,
    )
