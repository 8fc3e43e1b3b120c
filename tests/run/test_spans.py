"""Spans in a run's database: kept with their run, found by step and rank, and never more than a number."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from volary.run.database.journal import Journal
from volary.run.database.reader import RunReader
from volary.run.database.spans import SPANS_KEPT, Span
from volary.run.directory import RunDirectory


def span(rank: int, step: int, start_s: float = 0.0, kind: str = "exchange", name: str = "0.weight") -> Span:
    return Span(rank, step, kind, name, 1000.0 + start_s, 1000.5 + start_s, 64)


@pytest.fixture
def run(tmp_path: Path) -> RunDirectory:
    return RunDirectory.create(tmp_path / "runs", "mine", "stem", "network: lenet\n")


@pytest.fixture
def journal(run: RunDirectory) -> Iterator[Journal]:
    journal = Journal(run.database)
    yield journal
    journal.close()


def test_spans_come_back_by_when_they_began_of_the_steps_and_the_rank_that_are_asked_for(run, journal):
    given = [span(rank, step, start_s=step + rank / 4) for rank in (0, 1) for step in (2, 3, 100)]
    journal.spans(given[3:])
    journal.spans(given[:3])
    with RunReader(run) as reader:
        assert reader.recorded_steps() == [2, 3, 100]
        assert list(reader.spans(0, 1000)) == sorted(given, key=lambda one: one.start_s)
        assert [(one.step, one.rank) for one in reader.spans(3, 100)] == [(3, 0), (3, 1), (100, 0), (100, 1)]
        assert [one.step for one in reader.spans(3, 99, rank=1)] == [3]
        assert list(reader.spans(4, 99)) == []


def test_a_new_life_takes_back_the_spans_beyond_its_start(run, journal):
    journal.start_attempt(0)
    journal.spans([span(0, step) for step in range(2, 12)])
    journal.start_attempt(5)
    journal.spans([span(0, 7)])
    with RunReader(run) as reader:
        assert reader.recorded_steps() == [2, 3, 4, 5, 7]


def test_a_run_of_a_version_without_spans_has_none_and_gets_them_when_it_goes_on(run):
    with sqlite3.connect(run.database) as database:
        database.execute("DROP TABLE spans")
    database.close()
    with RunReader(run) as reader:
        assert reader.recorded_steps() == []
    journal = Journal(run.database)
    journal.spans([span(0, 2)])
    journal.close()
    with RunReader(run) as reader:
        assert reader.recorded_steps() == [2]


def test_the_oldest_make_room_for_the_newest(run, journal):
    journal.spans([span(0, step) for step in range(2, 12)])
    with sqlite3.connect(run.database) as database:  # as if as many had been written since as are kept
        database.execute("UPDATE spans SET id = ? WHERE step = 11", (SPANS_KEPT + 4,))
    database.close()
    journal.spans([span(0, 12)])
    with RunReader(run) as reader:
        assert reader.recorded_steps() == [7, 8, 9, 10, 11, 12]
