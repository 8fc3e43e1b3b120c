"""Curves as people ask for them, in a row of bars, and drawn."""

import math

import pytest

from monitor._made_runs import evaluated, journal, new_run, rows, whole_run
from volary.errors import BadInput
from volary.monitor.curves import Curve, curves, measured, names
from volary.monitor.terminal.plot import plot
from volary.monitor.terminal.sparkline import sparkline
from volary.run.database.course.curves import Point
from volary.run.database.reader import RunReader


def curve(*values, label="loss"):
    return Curve(label, tuple(Point(step, value, value, value) for step, value in enumerate(values, 1)))


def drawn(*found, width=40, height=8):
    return ["".join(character for character, _ in line).rstrip() for line in plot(found, width, height)]


def test_loss_is_that_of_training_and_that_of_validation():
    with RunReader(whole_run()) as reader:
        training, validation = curves(reader, "loss", 10, own_loop=False)
        assert (training.label, validation.label) == ("training loss", "validation loss")
        assert len(training.points) == 10
        assert [(point.step, point.mean) for point in validation.points] == [(23, 0.1), (46, 0.1)]
        assert [one.label for one in measured(reader, 10, own_loop=False)] == [
            "training loss",
            "validation loss",
            "validation accuracy",
        ]


def test_what_a_loop_of_the_users_own_records_is_called_as_they_call_it():
    directory = new_run()
    with journal(directory) as run:
        run.steps(rows(1, 4))
        run.metrics(2, {"loss": 0.5})
    with RunReader(directory) as reader:
        assert [one.label for one in measured(reader, 10, own_loop=True)] == ["loss"]


def test_a_loop_of_the_users_own_that_records_no_loss_has_that_of_its_steps_if_it_is_known():
    known, unknown = new_run("known"), new_run("unknown")
    for directory, loss in ((known, 0.5), (unknown, math.nan)):
        with journal(directory) as run:
            run.steps([row._replace(loss=loss) for row in rows(1, 4)])
    with RunReader(known) as reader:
        (found,) = measured(reader, 10, own_loop=True)
        assert (found.label, [point.mean for point in found.points]) == ("training loss", [0.5] * 4)
    with RunReader(unknown) as reader:
        assert measured(reader, 10, own_loop=True) == []


def test_a_name_that_the_run_has_not_is_refused_with_those_that_it_has():
    directory = whole_run()
    with RunReader(directory) as reader:
        assert names(reader)[:2] == ["accuracy", "loss"]
        with pytest.raises(BadInput, match="has recorded no 'f1'; accepted: accuracy, loss, lr, samples_per_s"):
            curves(reader, "f1", 10, own_loop=False)


def test_a_run_before_its_first_step_has_no_curves():
    with RunReader(new_run()) as reader:
        assert measured(reader, 10, own_loop=False) == []


@pytest.mark.parametrize(
    ("values", "width", "bars"),
    [
        ([1, 2, 3, 4, 5, 6, 7, 8], 8, "▁▂▃▄▅▆▇█"),
        ([8, 8, 1, 1], 2, "█▁"),
        ([5, 5, 5], 9, "▁▁▁"),
        ([1, math.nan, 2], 3, "▁ █"),
        ([1, math.nan, 3, math.inf], 2, "▁█"),
        ([math.nan], 3, " "),
        ([], 3, ""),
    ],
)
def test_bars_are_between_the_least_and_the_most_and_a_gap_is_a_gap(values, width, bars):
    assert sparkline(values, width) == bars


def test_a_picture_has_its_values_at_the_left_its_steps_below_and_a_legend():
    lines = drawn(curve(4.0, 3.0, 2.0, 1.0))
    assert lines[0].lstrip().startswith("4 │⠉")
    assert lines[7].lstrip().startswith("1 │")
    assert lines[7].endswith("A"), "the letter stands where the curve ends"
    assert lines[9].split() == ["step", "1", "4"]
    assert lines[10].strip() == "A loss: 1 at step 4, least 1 at 4, most 4 at 1"
    assert {len(line) for line in lines[:8]} <= set(range(8, 41))


def test_a_gap_is_not_drawn_over():
    def cells(*values):
        return {
            column for line in drawn(curve(*values), height=2)[:2] for column, mark in enumerate(line) if mark >= "⠁"
        }

    whole, broken = cells(1.0, 1.0, 1.0, 1.0, 1.0), cells(1.0, 1.0, math.nan, 1.0, 1.0)
    assert broken < whole
    assert len(whole - broken) > len(whole) / 3


def test_curves_are_told_apart_without_colours():
    lines = drawn(curve(1.0, 2.0, label="one"), curve(2.0, 1.0, label="two"))
    assert lines[0].endswith("A")
    assert lines[7].endswith("B")
    assert [line.split()[:2] for line in lines[-2:]] == [["A", "one:"], ["B", "two:"]]


@pytest.mark.parametrize("found", [[], [curve(math.nan)], [curve()]])
def test_nothing_to_draw_is_said(found):
    assert drawn(*found) == ["nothing that can be drawn is recorded"]


@pytest.mark.parametrize("values", [(0.0,), (3.0, 3.0), (-1.0, -1.0), (1e-9, 1e9)])
def test_any_values_can_be_drawn(values):
    assert len(drawn(curve(*values))) == 8 + 3


def test_evaluations_are_drawn_where_their_steps_are():
    directory = new_run()
    with journal(directory) as run:
        for step in (10, 20, 40):
            evaluated(run, step, step / 40)
    with RunReader(directory) as reader:
        lines = drawn(*curves(reader, "accuracy", 10, own_loop=False))
    assert lines[9].split() == ["step", "10", "40"]
