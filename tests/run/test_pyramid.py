"""A view of steps: the same sums, least and greatest values as of the steps themselves, from few rows."""

from __future__ import annotations

import random
import sqlite3
from contextlib import closing

import pytest

from monitor._made_runs import journal, new_run, row
from volary.run.database.course import pyramid
from volary.run.database.course.pyramid import StepView
from volary.run.database.journal import StepRow
from volary.run.database.reader import RunReader


def made(seed: int, steps: int, ranks: int) -> list[StepRow]:
    chance = random.Random(seed)
    return [
        row(step, rank, 0.0, 0.0, loss=chance.uniform(0, 9), samples=chance.randrange(99), ended_at=float(step))
        for step in range(1, steps + 1)
        for rank in range(ranks)
    ]


def written(rows: list[StepRow], name: str = "a", life_from: int | None = None):
    directory = new_run(name)
    with journal(directory) as run:
        run.note(workers=1 + max(one.rank for one in rows))
        for at in range(0, len(rows), 100):
            run.steps(rows[at : at + 100])
        if life_from is not None:
            run.start_attempt(life_from)
    return directory


def by_hand(rows: list[StepRow], view: StepView) -> dict[tuple[int, int], tuple[int, int, float, float, float]]:
    found: dict[tuple[int, int], list[StepRow]] = {}
    for one in rows:
        if view.first <= one.step <= view.last:
            found.setdefault((one.rank, (one.step - view.first) // view.width), []).append(one)
    return {
        key: (
            len(some),
            sum(one.samples for one in some),
            min(one.loss for one in some),
            max(one.loss for one in some),
            pytest.approx(sum(one.loss for one in some)),
        )
        for key, some in found.items()
    }


def seen(view: StepView) -> dict[tuple[int, int], tuple[int, int, float | None, float | None, float | None]]:
    return {
        (one.rank, one.column): (one.count, one.samples, one.loss_min, one.loss_max, one.loss_sum)
        for one in view.groups
    }


VIEWS = [(1, 3000, 1), (1, 3000, 7), (1, 3000, 100), (1, 3000, 5000), (999, 2001, 40), (2990, 3000, 3), (17, 17, 10)]


@pytest.mark.parametrize(("first", "last", "most"), VIEWS)
def test_a_view_is_what_adding_up_the_steps_gives(first, last, most):
    rows = made(1, 3000, 2)
    with RunReader(written(rows)) as reader:
        view = reader.view(first, last, most)
    assert view.first <= first
    assert (view.last - view.first) // view.width < max(most, 2) + 1
    assert seen(view) == by_hand(rows, view)


def test_steps_that_were_lost_are_a_gap_and_nothing_beside_it_is_missing():
    rows = [one for one in made(2, 2000, 2) if not (700 <= one.step < 1100 and one.rank == 1) and one.step != 333]
    with RunReader(written(rows)) as reader:
        for most in (5, 50, 3000):
            view = reader.view(1, 2000, most)
            assert seen(view) == by_hand(rows, view)


def test_what_a_new_life_takes_back_is_taken_back_from_views_and_comes_again():
    rows = made(3, 1000, 2)
    directory = written(rows, life_from=500)
    kept = [one for one in rows if one.step <= 500]
    again = [one for one in made(4, 1500, 2) if one.step > 500]
    with RunReader(directory) as reader:
        view = reader.view(1, 1000, 10)
        assert seen(view) == by_hand(kept, view)
        with journal(directory) as run:
            run.start_attempt(500)
            run.steps(again)
        view = reader.view(1, 1500, 10)
        assert seen(view) == by_hand(kept + again, view)


def test_losses_that_are_no_numbers_are_left_out_of_least_greatest_and_sum():
    rows = [row(step, 0, 0.0, 0.0, loss=float("nan") if step <= 32 else 1.0) for step in range(1, 65)]
    with RunReader(written(rows)) as reader:
        first, second = reader.view(1, 64, 2).groups
    assert (first.count, first.loss_count, first.loss_min, first.loss_sum) == (32, 0, None, None)
    assert (second.count, second.loss_count, second.loss_max, second.loss_sum) == (32, 32, 1.0, 32.0)


def test_a_run_of_a_version_without_groups_is_read_from_its_steps():
    rows = made(5, 300, 1)
    directory = written(rows)
    with closing(sqlite3.connect(directory.database)) as database:
        database.executescript("DROP TRIGGER steps_grouped; DROP TABLE groups;")
    with RunReader(directory) as reader:
        view = reader.view(1, 300, 10)
    assert seen(view) == by_hand(rows, view)


def test_a_view_of_many_steps_reads_few_rows(monkeypatch):
    rows = made(6, 20_000, 1)
    with RunReader(written(rows)) as reader:
        read = []
        query = reader._rows
        monkeypatch.setattr(reader, "_rows", lambda text, values=(): _counted(query(text, values), read))
        view = reader.view(1, 20_000, 100)
    assert seen(view) == by_hand(rows, view)
    assert sum(read) < 200


def _counted(rows, read):
    for one in rows:
        read.append(1)
        yield one


def test_with_very_many_workers_a_view_has_fewer_columns_rather_than_more_rows():
    level, width = pyramid._scale(steps=1_000_000, most=1000, ranks=1000)
    assert 1000 * 1_000_000 // pyramid._size(level) <= pyramid.ROWS
    assert width % pyramid._size(level) == 0


def test_workers_that_came_later_are_in_the_view():
    rows = made(7, 100, 2) + [row(step, 7, 0.0, 0.0) for step in range(30, 60)]
    with RunReader(written(rows)) as reader:
        assert reader.ranks() == [0, 1, 2, 3, 4, 5, 6, 7]
        assert sum(one.count for one in reader.view(1, 100, 10).groups) == 230


def test_a_worker_that_was_there_for_a_few_steps_only_is_in_the_totals():
    rows = made(8, 100, 2)
    directory = written(rows)
    with journal(directory) as run:
        run.event("joined", 5, 0, host="bee")
        run.steps(row(step, 5, 0.0, 0.0, samples=7, sent_bytes=3) for step in (40, 41))
    with RunReader(directory) as reader:
        totals = reader.totals()
    assert totals.samples == sum(one.samples for one in rows) + 14
    assert totals.sent_bytes == sum(one.sent_bytes for one in rows) + 6
    assert totals.busy_s == pytest.approx(sum(one.step_s for one in rows) / 3 + 0.2 / 3)


def test_a_metric_of_many_values_comes_in_few_parts_with_its_least_and_greatest():
    directory = new_run("m")
    with journal(directory) as run:
        for step in range(1, 1001):
            run.metrics(step, {"loss": 1000.0 - step, "other": 1.0})
    with RunReader(directory) as reader:
        assert reader.metric_names() == ["loss", "other"]
        parts = reader.metric("loss", 1, None, 10)
        assert [part.count for part in parts] == [100] * 10
        assert (parts[0].first, parts[0].last, parts[0].least, parts[0].greatest) == (1, 100, 900.0, 999.0)
        assert [part.mean for part in reader.metric("loss", 3, 4, 10)] == [997.0, 996.0]
        assert reader.metric("nothing", 1, None, 10) == []
