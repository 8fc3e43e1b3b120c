"""Histograms of parameters, gradients and updates, at some steps, in a run's database."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

HISTOGRAMS_KEPT = 60_000  # of a run, about 20 MB
KINDS = ("weight", "gradient", "update")


@dataclass(frozen=True, slots=True)
class Histogram:
    """A histogram of one parameter, `name`, after `step`. counts: values in equally wide parts of `low` to `high`.

    kind: one of KINDS. magnitude: the mean of the values' magnitudes.
    """

    step: int
    kind: str
    name: str
    low: float
    high: float
    magnitude: float
    counts: tuple[int, ...]


SCHEMA = f"""
CREATE TABLE IF NOT EXISTS histograms (
    id INTEGER PRIMARY KEY, step INTEGER NOT NULL, kind TEXT NOT NULL, name TEXT NOT NULL, low REAL NOT NULL,
    high REAL NOT NULL, magnitude REAL NOT NULL, counts TEXT NOT NULL);
CREATE INDEX IF NOT EXISTS histograms_by_name ON histograms (name, step);
CREATE TRIGGER IF NOT EXISTS histograms_kept AFTER INSERT ON histograms
    BEGIN DELETE FROM histograms WHERE id <= NEW.id - {HISTOGRAMS_KEPT}; END;
"""
INSERT = "INSERT INTO histograms (step, kind, name, low, high, magnitude, counts) VALUES (?, ?, ?, ?, ?, ?, ?)"
TAKE_BACK = "DELETE FROM histograms WHERE step > ?"
IS_THERE = "SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = 'histograms'"  # not in an older version's run
MAGNITUDES = "SELECT step, kind, name, magnitude FROM histograms WHERE kind != 'gradient' ORDER BY id"
OF_NAME = "SELECT step, kind, name, low, high, magnitude, counts FROM histograms WHERE name = ? ORDER BY step"


def rows(found: Iterable[Histogram]) -> list[tuple[object, ...]]:
    """The rows of the table `histograms` that hold these."""
    return [
        (one.step, one.kind, one.name, one.low, one.high, one.magnitude, json.dumps(one.counts, separators=(",", ":")))
        for one in found
    ]


def read(found: Iterable[tuple[int, str, str, float, float, float, str]]) -> Iterator[Histogram]:
    """The histograms in these rows of the database."""
    for step, kind, name, low, high, magnitude, counts in found:
        yield Histogram(step, kind, name, low, high, magnitude, tuple(json.loads(counts)))
