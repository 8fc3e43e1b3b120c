"""Curves as a figure of matplotlib."""

import pytest

from monitor._made_runs import journal, new_run, row, whole_run
from volary import Result
from volary.errors import BadInput, RunError

pytest.importorskip("matplotlib")


def test_a_run_is_drawn_by_what_it_measured():
    whole_run("a")
    figure = Result.of("a").plot()
    assert [picture.get_ylabel() for picture in figure.axes] == ["loss", "accuracy"]
    training, validation = figure.axes[0].lines
    assert (training.get_label(), validation.get_label()) == ("training loss", "validation loss")
    assert list(training.get_xdata()[:3]) == [1, 2, 3]
    assert list(training.get_ydata()[:2]) == [2.0, 1.0]
    assert list(validation.get_xdata()) == [23, 46]


def test_runs_are_drawn_beside_each_other_under_their_names():
    whole_run("a")
    whole_run("b", 60)
    figure = Result.of("a").plot("accuracy", "lr", beside=[Result.of("b")])
    assert [line.get_label() for line in figure.axes[0].lines] == ["a, validation accuracy", "b, validation accuracy"]
    assert [picture.get_ylabel() for picture in figure.axes] == ["accuracy", "lr"]


def test_what_a_point_stands_for_is_shaded():
    directory = new_run("long")
    with journal(directory) as run:
        run.steps(row(step, 0, 0.0, 0.0, loss=step % 2) for step in range(1, 2001))
    (picture,) = Result.of("long").plot("loss").axes
    assert len(picture.lines[0].get_xdata()) == 1000
    assert len(picture.collections) == 1


def test_a_figure_shows_itself_where_a_notebook_asks():
    whole_run("a")
    assert Result.of("a").plot("loss")._repr_png_().startswith(b"\x89PNG")


def test_a_run_that_has_measured_nothing_gives_an_empty_picture():
    new_run("empty")
    (picture,) = Result.of("empty").plot().axes
    assert not picture.lines


def test_a_result_is_of_a_run_as_it_is():
    whole_run("a")
    found = Result.of("runs/a")
    assert (found.state, found.steps, found.metrics["accuracy"]) == ("finished", 46, [(23, 0.9132), (46, 0.9733)])
    with pytest.raises(RunError, match="no run at nowhere"):
        Result.of("nowhere")


def test_what_is_not_there_is_refused(monkeypatch):
    whole_run("a")
    with pytest.raises(BadInput, match="a has recorded no 'f1'"):
        Result.of("a").plot("f1")
    monkeypatch.setitem(__import__("sys").modules, "matplotlib.figure", None)
    with pytest.raises(BadInput, match=r"matplotlib is not installed; accepted: pip install 'volary\[plot\]' first"):
        Result.of("a").plot()
