"""Runs that are not as usual: just begun, of a loop of one's own, without a driver, unreadable, of an older version."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from monitor._made_runs import finished, journal, new_run, rows, started, whole_run
from page._asking import Server, served
from volary.page.questions.answers import ANSWERS
from volary.run.directory import RunDirectory


@pytest.fixture(scope="module")
def odd(tmp_path_factory):
    """A server of all of them."""
    folder = tmp_path_factory.mktemp("odd")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        new_run("new")
        with journal(new_run("begun")) as run:
            started(run)
        _own_loop()
        with journal(new_run("lost")) as run:
            started(run)
            run.steps(rows(1, 3))
        whole_run("broken").database.write_bytes(b"no database")
        _of_an_older_version()
        _diverged()
    with served(folder / "runs") as found:
        yield found


def _own_loop() -> None:
    directory = RunDirectory.create(Path("runs"), "own", "", "function: train.py:train\nworkers: 1\n")
    with journal(directory) as run:
        started(run, workers=1)
        run.steps(rows(1, 20, workers=1, loss=0.0, epoch=0.0, samples=0))
        for step in (5, 10):
            run.metrics(step, {"loss": 1 / step, "f1": 0.5})


def _of_an_older_version() -> None:
    with closing(sqlite3.connect(whole_run("old").database)) as database:
        database.executescript(
            "DROP TRIGGER steps_grouped; DROP TABLE groups; DROP TABLE spans; DROP TABLE counts;"
            "DROP INDEX metrics_by_name;"
        )


def _diverged() -> None:
    with journal(new_run("diverged")) as run:
        started(run)
        run.steps(rows(1, 10))
        run.steps(rows(11, 20, loss=float("nan")))
        run.note(error="NotFinite", exit_code=6)
        finished(run, 20, "failed", "the loss of ranks 0 and 1 is NaN or infinite at step 21")


@pytest.mark.parametrize("name", ["new", "begun", "own", "lost", "old", "diverged"])
def test_every_question_about_it_has_an_answer(name, odd: Server):
    for question in ANSWERS:
        assert odd.ask(question, run=name) is not None


def test_a_run_without_a_driver_says_so(odd: Server):
    assert "its driver is gone" in odd.ask("facts", run="lost")["wrong"][0]["text"]


def test_a_run_is_advised_as_on_the_command_line(odd: Server):
    """The same settings would diverge again: to resume it as it is would be no advice."""
    lines = odd.ask("facts", run="diverged")["advice"]
    assert [line.partition(";")[0] for line in lines] == [
        "resumed with the same settings it diverges again",
        "or clip gradients (train.clip_norm=1), or leave such batches out (train.on_nonfinite=skip)",
    ]
    assert [line.partition(":")[0] for line in odd.ask("facts", run="lost")["advice"]] == [
        "begin again, as there is no checkpoint yet"
    ]
    assert odd.ask("facts", run="old")["advice"] == []


def test_a_run_that_has_only_begun_has_no_points(odd: Server):
    assert odd.ask("steps", run="begun")["points"] == 0
    assert odd.ask("facts", run="begun")["checkpoints"] == []


def test_a_run_of_an_older_version_shows_the_same_steps(odd: Server):
    assert odd.ask("steps", run="old")["points"] == 92
    assert odd.ask("metric", run="old", name="accuracy")["mean"] == [0.9132, 0.9733]


def test_losses_that_are_no_numbers_are_a_gap(odd: Server):
    loss = odd.ask("steps", run="diverged")["loss"]
    assert loss["mean"][9:11] == [0.2, None]
    assert loss["greatest"][10:] == [None] * 10


def test_a_database_that_cannot_be_read_is_told_and_hides_no_other_run(odd: Server):
    said = odd.say("GET", "/api/facts?run=broken")
    assert (said.status, "not a readable run database" in said.text) == (404, True)
    states = {row["id"]: row["state"] for row in odd.ask("runs")["runs"]}
    assert states["broken"] == "unreadable"
    assert len(states) == 7


def test_their_pages_draw_what_there_is(page, odd: Server):
    for name, text in (
        ("new", "No step yet."),
        ("begun", "No step yet."),
        ("lost", "its driver is gone"),
        ("own", "train.py:train"),
        ("old", "finished"),
    ):
        page.goto(f"{odd.link}#/run/{name}")
        page.get_by_text(text).first.wait_for()
    page.goto(f"{odd.link}#/run/own")
    page.get_by_role("img", name="recorded: newest 0.1 at step 10").wait_for()
