"""Runs of the queue that are on another machine, which ssh reaches, and which is lost."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from faults._queue import ALL_CORES, driver, found, submit, until
from faults._running import events, last_step, outcome, session, state
from faults.conftest import STEPS
from jobs._ssh import UNREACHED, hosts
from volary.cli.command.main import run as command
from volary.jobs.entry import entry_of

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("queue")]  # two runs


@pytest.fixture
def two_runs(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """One has this machine and one is on alpha, both before the step that they do when there is a file `go-on`."""
    hosts(monkeypatch, "alpha", "beta", down="beta")
    session(steps=STEPS, fault="loop until told", at=40)
    for name in ("here", "there"):
        submit(ALL_CORES, f"run.name={name}")
        until(lambda name=name: last_step(found(name)) == 39)
    yield
    Path("go-on").touch()


def test_a_run_for_which_there_is_no_room_here_trains_on_a_machine_of_the_settings(two_runs, capfd):
    assert entry_of(found("there")).given.host == "alpha"
    capfd.readouterr()
    assert command(["queue"]) == 0
    said = capfd.readouterr()
    assert next(line for line in said.out.splitlines() if "there" in line).endswith("  on alpha")
    assert UNREACHED.format(name="beta") in said.err
    Path("go-on").touch()
    until(lambda: state(found("here")) == state(found("there")) == "finished")
    assert (found("there").logs / "ssh-alpha-workers.log").exists()
    assert found("there").session.read_text() == found("here").session.read_text().replace("name: here", "name: there")
    assert outcome(found("there")).continues(outcome(found("here")))


def test_a_run_whose_machine_is_lost_waits_and_resumes_where_there_is_room(two_runs, undisturbed):
    Path("down").write_text("alpha\nbeta\n")
    for child in driver("there").children():
        child.kill()  # the ssh: what it started ends itself
    Path("go-on").touch()
    until(lambda: state(found("here")) == state(found("there")) == "finished")
    assert len(events(found("there"), "started")) == 2
    assert outcome(found("there")).continues(undisturbed)
