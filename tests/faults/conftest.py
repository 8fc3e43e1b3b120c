"""Fixtures of all fault tests: runs that never outlive their test, and an undisturbed one to compare with."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from _once import once
from faults._clock import MOVED
from faults._queue import until
from faults._running import VOLARY, Run, outcome, running, session
from volary.cli.command.main import run as command
from volary.errors import RunError
from volary.jobs.queue import LocalQueue
from volary.jobs.table import QueueTable, queue_folder
from volary.run.directory import RunDirectory

STEPS = 160


@pytest.fixture
def launch() -> Iterator[Callable[..., Run]]:
    """`launch("train", "session.yaml")`: the command in a process of its own."""
    with contextlib.ExitStack() as stack:
        yield lambda *arguments, **how: stack.enter_context(running(*VOLARY, *arguments, **how))


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Path:
    """The seconds by which the clock of every process that a test starts is ahead: a file, to be replaced whole."""
    file = Path("ahead").absolute()
    file.write_text("0")
    Path("moved").mkdir()
    Path("moved/sitecustomize.py").write_text(MOVED.format(file=str(file)))
    monkeypatch.setenv("PYTHONPATH", str(Path("moved").absolute()))
    return file


@pytest.fixture(scope="session")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Losses and final weights of a run of STEPS steps that nothing disturbs."""
    return outcome(RunDirectory(once(tmp_path_factory, "undisturbed", _run_undisturbed) / "runs" / "it"))


def _run_undisturbed(folder: Path) -> None:
    home = Path.cwd()
    folder.mkdir()
    os.chdir(folder)
    try:
        with running(*VOLARY, "train", session(steps=STEPS), "--quiet") as run:
            assert run.ended().status == 0, run.text()
    finally:
        os.chdir(home)


@pytest.fixture
def queue(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[LocalQueue]:
    """The queue of a user of the test's own, which is empty in the end."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    (tmp_path / "state").mkdir()
    yield LocalQueue()
    for run in LocalQueue().runs():  # of a test that failed
        with contextlib.suppress(RunError):
            LocalQueue().cancel(run)
    with QueueTable(queue_folder()) as table:
        until(lambda: not table.has_runner(), 20)


@pytest.fixture
def volary_queue(capfd: pytest.CaptureFixture[str]) -> Callable[[], str]:
    """`volary queue`, which starts a runner where one is missing; what it printed."""

    def call() -> str:
        capfd.readouterr()
        assert command(["queue"]) == 0
        return "".join(capfd.readouterr())

    return call
