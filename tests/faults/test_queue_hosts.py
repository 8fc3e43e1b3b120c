"""Runs of the queue that are on another machine, which ssh reaches, and which is lost."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from _nvml import nvml
from faults._queue import ALL_CORES, driver, found, submit, until
from faults._running import events, last_step, outcome, session, state
from faults.conftest import STEPS
from jobs._ssh import UNREACHED, hosts
from volary.cli.command.main import run as command
from volary.jobs.entry import entry_of
from volary.run.machine.gpus import LIBRARY, VISIBLE

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


def test_two_runs_have_a_gpu_each_of_one_machine_by_number_and_not_one_that_somebody_computes_on(monkeypatch, queue):
    hosts(monkeypatch, "alpha", visible="0,1,2")
    Path("library").mkdir()
    library = nvml(Path("library", LIBRARY).absolute())
    monkeypatch.setenv("LD_LIBRARY_PATH", str(library.parent))
    monkeypatch.setenv(VISIBLE, "")  # this machine has none
    session(steps=STEPS, fault="loop until told", at=10)
    names = ["first", "second"]
    for name in names:
        submit("--gpus", 1, "--cores", 1, f"run.name={name}")
        until(lambda name=name: last_step(found(name)) == 9)
    submit("--gpus", 1, "--cores", 1, "run.name=third")
    given = [entry_of(found(name)).given for name in names]
    assert [(one.host, one.gpus) for one in given] == [("alpha", (0,)), ("alpha", (2,))]
    for name, one in zip(names, given, strict=True):
        variables = [child.environ() for child in driver(name).children(recursive=True)]
        workers = [one for one in variables if "VOLARY_HOSTS_RANK" in one]
        assert [worker[VISIBLE] for worker in workers] == 2 * [str(one.gpus[0])]
    row = next(row for row in queue.rows() if row.entry.run == str(found("third").path.absolute()))
    assert row.reason.startswith("waits for ")
    assert row.reason.endswith("1 GPU on alpha")
    Path("go-on").touch()
    until(lambda: state(found("third")) == "finished", 120)


def test_a_run_whose_machine_is_lost_waits_and_resumes_where_there_is_room(two_runs, undisturbed):
    Path("down").write_text("alpha\nbeta\n")
    for child in driver("there").children():
        child.kill()  # the ssh: what it started ends itself
    Path("go-on").touch()
    until(lambda: state(found("here")) == state(found("there")) == "finished")
    assert len(events(found("there"), "started")) == 2
    assert outcome(found("there")).continues(undisturbed)
