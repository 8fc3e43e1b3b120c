"""What every fault test needs: runs that never outlive their test, and one that nobody disturbed to compare with."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from _once import once
from faults._running import VOLARY, Run, outcome, running, session
from volary.run.directory import RunDirectory

STEPS = 160


@pytest.fixture
def launch() -> Iterator[Callable[..., Run]]:
    """`launch("train", "session.yaml")`: the command in a process of its own."""
    with contextlib.ExitStack() as stack:
        yield lambda *arguments, **how: stack.enter_context(running(*VOLARY, *arguments, **how))


@pytest.fixture(scope="session")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """What a run of STEPS steps comes to when nothing happens to it: its losses and its final weights."""
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
