"""Charts of a run whose workers count contributions of their own are over the steps of the run."""

from __future__ import annotations

from collections import Counter

import pytest

from monitor._made_runs import journal, new_run, row, started
from volary.monitor.digest import Follower
from volary.run.database.journal import StepRow
from volary.run.database.kept_contributions import KeptContributions
from volary.run.database.reader import RunReader
from volary.run.directory import RunDirectory


def served(steps: int, rows: list[StepRow]) -> RunDirectory:
    """A run in which the roster has counted so many steps."""
    directory = new_run("served")
    with journal(directory) as run:
        started(run, steps)
        run.steps(rows)
        run.note(steps_now=steps)
    return directory


def contribution(number: int, rank: int, at: float) -> StepRow:
    return row(number, rank, 0.0, 0.0, loss=1 / at)._replace(ended_at=1000 + at, samples=32)


def both(count: int) -> list[StepRow]:
    """Two workers, equally quick."""
    return [contribution(number, rank, number + rank / 2) for number in range(1, count + 1) for rank in (0, 1)]


@pytest.mark.parametrize(
    ("steps", "contributions"),
    [(315, 630), (315, 315), (320, 40)],
    ids=["half of them are left out", "a step is one of each", "one stands for several steps"],
)
@pytest.mark.parametrize("most", [1000, 64, 7])
def test_the_course_of_a_run_ends_with_the_run_and_has_no_gaps(steps, contributions, most):
    with RunReader(served(steps, both(contributions))) as reader:
        course = reader.course(1, None, most)
    assert (course.first, course.last) == (1, steps)
    columns = {group.column for group in course.groups}
    assert columns == set(range((steps - 1) // course.width + 1))
    assert len(columns) <= most
    assert sum(group.samples for group in course.groups) == 32 * 2 * contributions
    first, *_, last = [group for group in course.groups if group.rank == 0]
    assert first.loss_max == pytest.approx(1.0)
    assert last.loss_min == pytest.approx(1 / contributions)


def test_a_quick_worker_and_a_slow_one_are_placed_by_when_they_contributed():
    rows = [contribution(number, 0, number) for number in range(1, 301)]
    rows += [contribution(number, 1, 3 * number + 0.5) for number in range(1, 101)]
    with RunReader(served(200, rows)) as reader:
        halves = reader.course(1, None, 2)
    counted = Counter({(group.rank, group.column): group.count for group in halves.groups})
    assert counted == {(0, 0): 150, (0, 1): 150, (1, 0): 50, (1, 1): 50}


def test_some_steps_of_the_course_are_those_that_all_of_it_shows_there():
    with RunReader(served(315, both(630))) as reader:
        whole, part = reader.course(1, None, 1000), reader.course(101, 150, 1000)
        one = reader.course(101, 150, 1000, rank=1)
    there = {group.column + 1: group.loss_sum for group in whole.groups if group.rank == 1}
    assert (part.first, part.last, part.width) == (101, 150, 1)
    assert {101 + group.column: group.loss_sum for group in part.groups if group.rank == 1} == {
        step: there[step] for step in range(101, 151)
    }
    assert [group for group in part.groups if group.rank == 1] == one.groups


@pytest.mark.parametrize("name", ["loss", "lr", "samples_per_s", "step_s", "sent_bytes"])
def test_curves_are_over_the_steps_of_the_run_too(name):
    with RunReader(served(315, both(630))) as reader:
        points = reader.curve(name, 40)
        assert reader.curve("samples_per_s", 1)[0].mean == pytest.approx(64 / rows_step_s(reader))
    assert points[-1].step == 315
    assert [one.step for one in points] == sorted({one.step for one in points})
    assert all(one.least <= one.mean <= one.most for one in points)


def rows_step_s(reader: RunReader) -> float:
    return next(iter(reader.steps())).step_s


def test_a_run_that_workers_count_in_step_is_as_it_was():
    directory = new_run("plain")
    with journal(directory) as run:
        started(run, 50)
        run.steps(both(50))
    with RunReader(directory) as reader:
        assert reader.course(1, None, 100) == reader.view(1, 50, 100)
        assert reader.course(10, 20, 100, rank=1) == reader.view(10, 20, 100, rank=1)


def test_the_newest_steps_are_those_of_all_workers_whatever_each_has_counted():
    slow = [contribution(number, 1, 5.0 * number) for number in range(1, 21)]
    gone = [contribution(number, 2, number) for number in range(1, 11)]
    directory = served(80, [*(contribution(number, 0, number) for number in range(1, 101)), *slow, *gone])
    with RunReader(directory) as reader:
        recent = reader.recent(20)
        window = reader.window(20)
    numbers = {rank: [one.step for one in recent if one.rank == rank] for rank in range(3)}
    assert numbers == {0: list(range(81, 101)), 1: list(range(17, 21)), 2: []}
    assert window is not None
    assert window.step == 100


def test_a_resumed_run_has_started_once_its_roster_counts():
    directory = served(80, [contribution(number, rank, number) for number in range(1, 41) for rank in (0, 1)])
    with journal(directory) as run, directory.lock():
        run.start_attempt(80, KeptContributions({0: 40, 1: 40}, before=0))
        run.note(state="running", steps_now=80)
        run.event("resumed", None, 80, from_step=80)
        follower = Follower(directory)
        assert follower.look().starting
        run.steps([contribution(41, 0, 100)])
        run.note(counted_from=1100.0, counted_from_step=81, steps_now=81)
        assert follower.look().starting == ""
        follower.close()
