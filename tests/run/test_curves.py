"""Measurements of steps in a few points, and totals of a whole run."""

import math

import pytest

from volary.run.database.course.curves import MEASURED
from volary.run.database.journal import Journal, StepRow
from volary.run.database.reader import RunReader
from volary.run.directory import RunDirectory


def row(step, rank, **values):
    return StepRow(**{**dict.fromkeys(StepRow._fields, 0), "step": step, "rank": rank, **values})


@pytest.fixture
def run(tmp_path):
    return RunDirectory.create(tmp_path / "runs", "mine", "stem", "network: lenet\n")


def written(run, *rows):
    journal = Journal(run.database)
    journal.steps(rows)
    journal.close()
    return RunReader(run)


def test_a_point_stands_for_equally_many_steps_with_their_least_mean_and_most(run):
    with written(run, *(row(step, rank, loss=step + rank) for step in range(1, 9) for rank in (0, 1))) as reader:
        points = reader.curve("loss", 4)
        assert [point.step for point in points] == [2, 4, 6, 8]
        # the loss of a step is the mean of its workers: step 1 has 1.5, step 2 has 2.5
        assert (points[0].least, points[0].mean, points[0].most) == (1.5, 2.0, 2.5)
        assert [point.step for point in reader.curve("loss", 100)] == list(range(1, 9)), "no more points than steps"


def test_a_loss_that_is_no_number_is_a_gap_and_spoils_no_point_beside_numbers(run):
    losses = [1.0, math.nan, math.nan, math.nan]
    with written(run, *(row(step, 0, loss=loss) for step, loss in enumerate(losses, 1))) as reader:
        first, second = reader.curve("loss", 2)
    assert first.mean == 1.0
    assert math.isnan(second.mean)


def test_speed_and_bytes_are_those_of_all_workers_together(run):
    rows = [row(step, rank, samples=32, step_s=0.5, sent_bytes=10) for step in (1, 2) for rank in (0, 1)]
    with written(run, *rows) as reader:
        assert reader.curve("samples_per_s", 1)[0].mean == 128
        assert reader.curve("sent_bytes", 1)[0].mean == 20
        totals = reader.totals()
    assert (totals.samples, totals.sent_bytes, totals.busy_s, totals.samples_per_s) == (128, 40, 1.0, 128.0)


def test_a_run_without_steps_has_empty_curves_and_took_nothing(run):
    with written(run) as reader:
        assert {name: reader.curve(name, 10) for name in MEASURED} == {name: [] for name in MEASURED}
        totals = reader.totals()
    assert (totals.samples, totals.samples_per_s) == (0, None)
