"""Runs that train without the queue: their cores are known to it as long as their driver lives."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from volary.jobs.machines.unqueued import cores_outside, counted
from volary.run.directory import RunDirectory
from volary.run.launch.queued import QUEUED_RUN


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> RunDirectory:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return RunDirectory.create(Path("runs"), "a", "it", "network: lenet\n")


def files() -> list[Path]:
    return list(Path("state/volary").glob("unqueued-*/*"))


def test_a_run_has_its_cores_until_it_ends(run):
    with run.lock(), counted(run, [1, 3]):
        assert cores_outside() == {1, 3}
        assert cores_outside({str(run.path)}) == set(), "one that the queue has counts there"
    assert cores_outside() == set()
    assert files() == []


def test_a_driver_that_was_killed_has_none(run):
    with counted(run, [1, 3]):  # nobody holds the run
        assert cores_outside() == set()
        assert files() == []


def test_what_the_queue_has_started_is_not_counted_twice(run, monkeypatch):
    monkeypatch.setitem(os.environ, QUEUED_RUN, str(run.path))
    with run.lock(), counted(run, [1]):
        assert cores_outside() == set()


def test_a_home_that_cannot_be_written_to_keeps_nobody_from_training(run):
    Path("state").write_text("no folder")
    with run.lock(), counted(run, [1]):
        assert cores_outside() == set()
