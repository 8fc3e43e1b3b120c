"""The verbs that look at runs, side by side too, and those that tidy them up."""

import io
import json
from pathlib import Path

import pytest

from monitor._made_runs import journal, new_run, started, whole_run
from volary.run.sweep import Sweep


def test_show_has_the_curves_of_training_and_validation(volary):
    whole_run("a")
    lines = {line.split("  ")[0]: line for line in volary("show", "a").out.splitlines()}
    assert "█▄▃" in lines["training loss"]
    assert lines["validation accuracy"].split()[-4:] == ["0.9132", "0.9733", "0.9132", "0.9733"]
    found = json.loads(volary("show", "a", "--json").out)["curves"]
    assert [curve["label"] for curve in found] == ["training loss", "validation loss", "validation accuracy"]
    assert (found[2]["steps"], found[2]["values"]) == ([23, 46], [0.9132, 0.9733])


def test_show_has_tables_of_the_newest_figures_of_classes(volary):
    directory = whole_run("a")
    with journal(directory) as run:
        run.metrics(60, {"recall[0]": 0.5, "recall[1]": 1.0, "confusion[0,0]": 3.0, "confusion[0,1]": 3.0})
    lines = [line.split() for line in volary("show", "a").out.splitlines()]
    place = lines.index(["class", "recall"])
    assert lines[place + 1 : place + 6] == [["0", "0.5"], ["1", "1"], [], ["confusion", "0", "1"], ["0", "3", "3"]]


def test_show_draws_a_curve(volary, monkeypatch):
    monkeypatch.setenv("COLUMNS", "60")
    whole_run("a")
    said = volary("show", "a", "--plot", "loss")
    assert said.status == 0
    assert "A training loss: 0.04348 at step 46" in said.out
    assert "B validation loss: 0.1 at step 46" in said.out
    assert max(len(line) for line in said.out.splitlines()[:17]) <= 60
    assert [one["label"] for one in json.loads(volary("show", "a", "--plot", "lr", "--json").out)] == ["lr"]
    refused = volary("show", "a", "--plot", "los")
    assert refused.status == 2
    assert "has recorded no 'los'" in refused.err


def test_curves_are_printed_where_the_terminal_has_no_such_characters(fresh):
    whole_run("a")
    said = fresh("-m", "volary", "show", "a", PYTHONIOENCODING="ascii")
    assert (said.status, said.err) == (0, "")
    assert "validation accuracy" in said.out


def test_compare_prints_what_differs_or_draws_it(volary):
    whole_run("a")
    whole_run("b", 60)
    said = volary("compare", "a", "b")
    assert said.out.splitlines()[0].split() == ["a", "b"]
    assert "validation accuracy  0.9733" in said.out
    told = json.loads(volary("compare", "a", "b", "--json").out)
    assert told["differing"] == {}
    assert [run["step"] for run in told["runs"]] == [46, 60]
    assert "B b, validation accuracy: 0.9733 at step 60" in volary("compare", "a", "b", "--plot", "accuracy").out


def test_runs_are_sorted_and_shown_with_the_columns_that_are_asked_for(volary):
    whole_run("a")
    whole_run("b", 60)
    volary("tag", "b", "good")
    header, first, second = volary("runs", "--sort", "step", "--columns", "optimizer.lr,time").out.splitlines()
    assert header.split() == ["run", "state", "steps", "best", "when", "optimizer.lr", "time", "tags"]
    assert (first.split()[0], second.split()[0]) == ("a", "b")
    assert second.split()[-4:] == ["0.05", "14", "s", "good"]
    refused = volary("runs", "--sort", "bets")
    assert refused.status == 2
    assert "did you mean 'best'?" in refused.err


def test_show_says_who_decodes_and_why(volary):
    directory = new_run("a")
    with journal(directory) as writing:
        started(writing)
        decoding = {"source": 0, "by": "threads", "count": 2, "why": "samples differ in size", "readers": 8}
        writing.event("decoding", **decoding, readers_why="a sample takes 40 us, 60 us with 16")
    said = volary("show", "a").out.splitlines()
    assert "samples are decoded by 2 threads a worker: samples differ in size" in said
    assert "samples are read ahead by 8 threads a worker: a sample takes 40 us, 60 us with 16" in said


def test_a_run_is_tagged_and_shows_it(volary):
    whole_run("a")
    said = volary("tag", "a", "good", "--note", "the first")
    assert said.out.splitlines() == ["run   a", "tags  good", "note  the first"]
    assert volary("tag", "a").out == said.out
    assert "tags      good\n" in volary("show", "a").out
    assert json.loads(volary("tag", "a", "--remove", "good", "--json").out)["tags"] == []
    assert volary("tag", "a", "two words").status == 2


def test_rm_asks_and_does_nothing_without_a_yes(volary, monkeypatch):
    directory = whole_run("a")
    monkeypatch.setattr("sys.stdin", io.StringIO())
    said = volary("rm", "a")
    assert said.status == 130
    assert "runs/a" in said.out
    assert directory.database.is_file()
    assert volary("rm", "a", "--yes").out == "removed runs/a\n"
    assert not directory.path.exists()


def test_rm_refuses_before_it_removes_anything_if_one_of_them_is_running(volary):
    first, second = new_run("a"), new_run("b")
    with second.lock():
        said = volary("rm", "a", "b", "--yes")
    assert said.status == 2
    assert "b is running" in said.err
    assert first.database.is_file()


@pytest.mark.parametrize("verb", ["compare", "rm"])
def test_verbs_of_several_runs_want_at_least_one(verb, volary):
    assert volary(verb).status == 2


def test_runs_name_the_sweeps_beside_them(volary):
    Sweep.create(Path("runs"), "rates", "", "network: lenet\n", {"a": {}, "b": {}})
    line = "rates  a sweep of 2 runs: volary runs --folder runs/rates\n"
    assert volary("runs").out == line
    whole_run("a")
    assert volary("runs").out.endswith(f"\n{line}")
    assert len(json.loads(volary("runs", "--json").out)) == 1


def test_a_run_with_very_many_metrics_is_shown_with_the_first_of_them(volary):
    with journal(new_run("many")) as run:
        run.metrics(1, {f"m{number:05d}": 0.5 for number in range(10_000)})
    lines = volary("show", "many").out.splitlines()
    assert "and 9980 more: --json, or --plot METRIC" in lines
    assert len([line for line in lines if line.startswith("validation m")]) == 20
