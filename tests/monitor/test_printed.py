"""Output of the user's program on rank 0 is shown as it comes, above the view, and once."""

from __future__ import annotations

import io
from pathlib import Path

import pytest

from volary.monitor.printed import Printed
from volary.monitor.terminal.console import Console
from volary.monitor.terminal.live import Live
from volary.run.database.journal import Journal
from volary.run.directory import RunDirectory
from volary.run.log import VERDICT_BELOW


@pytest.fixture
def log() -> Path:
    Path("log").touch()
    return Path("log")


def add(log: Path, text: str) -> None:
    with log.open("a") as file:
        file.write(text)


def test_a_line_is_shown_once_it_is_whole(log):
    printed = Printed(log)
    add(log, "one\ntw")
    assert printed.lines() == ["one"]
    add(log, "o\n\nthr")
    assert printed.lines() == ["two", ""]
    assert printed.lines() == []
    assert printed.lines(last=True) == ["thr"]


def test_of_a_progress_bar_the_last_state_is_shown(log):
    add(log, "10 %\r50 %\r100 %\n")
    assert Printed(log).lines() == ["100 %"]


def test_the_verdict_that_the_command_tells_anyway_is_not_shown_twice(log):
    printed = Printed(log)
    add(log, f"mine\n{VERDICT_BELOW}\nTraceback (most recent call last):\n")
    assert printed.lines() == ["mine"]
    add(log, "ZeroDivisionError\n")
    assert printed.lines(last=True) == []


def own_run(attempt: int) -> RunDirectory:
    directory = RunDirectory.create(Path("runs"), "own", "", "program: train.py\nstrategy: {workers: 2}\n")
    journal = Journal(directory.database)
    for _ in range(attempt + 1):
        journal.start_attempt(0)
    journal.close()
    return directory


@pytest.mark.parametrize(("attempt", "shown"), [(0, ["earlier", "now"]), (1, ["now"])])
@pytest.mark.parametrize("quiet", [True, False])
def test_the_console_shows_what_rank_0_prints_in_this_life(attempt, shown, quiet):
    directory, stream = own_run(attempt), io.StringIO()
    add(directory.log(0), "earlier\n")
    add(directory.log(1), "of another rank\n")
    console = Console(quiet, stream)
    console.started(directory)
    add(directory.log(0), "now\n")
    console.look()
    console.ended()
    assert [line for line in stream.getvalue().splitlines() if line in ("earlier", "now", "of another rank")] == shown


def test_a_session_has_no_program_that_prints():
    directory, stream = RunDirectory.create(Path("runs"), "it", "", "network: lenet\n"), io.StringIO()
    console = Console(False, stream)
    console.started(directory)
    add(directory.log(0), "a warning of a library\n")
    console.ended()
    assert "a warning" not in stream.getvalue()


def test_a_terminal_shows_it_above_the_picture():
    stream = io.StringIO()
    view = Live(stream)
    view.say(["[bold]as it is[/bold]", "\x1b[31mred\x1b[0m"])
    view.close()
    assert stream.getvalue().splitlines()[:2] == ["[bold]as it is[/bold]", "red"]
