"""Runs in the queue of this machine, as tests submit them, wait for them, and kill who drives them."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil  # type: ignore[import-untyped]

from faults._running import BUSY
from volary.cli.command.main import run as command
from volary.jobs.table import QueueTable, queue_folder
from volary.run.directory import RunDirectory
from volary.run.machine.cores import cores_here

ALL_CORES = f"--cores={len(cores_here())}"


def until(condition: Callable[[], Any], at_most_s: float = 60) -> Any:
    """Wait for a condition; its value. at_most_s: on a quiet machine."""
    end = time.monotonic() + BUSY * at_most_s
    while not (value := condition()):
        assert time.monotonic() < end, f"waited {at_most_s} s in vain:\n{said()}"
        time.sleep(0.05)
    return value


def said() -> str:
    """Everything that the runner and the runs' drivers said, for a failing test."""
    logs = [*queue_folder().glob("*.log"), *Path("runs").glob("*/logs/*.log")]
    return "\n".join(f"{log}:\n{log.read_text()}" for log in logs)


def submit(*arguments: object) -> None:
    """`volary submit session.yaml` with more."""
    assert command(["submit", "session.yaml", *map(str, arguments)]) == 0


def found(name: str) -> RunDirectory:
    """The run of that name."""
    return RunDirectory(Path("runs") / name)


def runner() -> psutil.Process:
    """Who carries the queue out, once somebody does."""
    with QueueTable(queue_folder()) as table:
        until(table.has_runner)
        return psutil.Process(int(until(table.runner_lock.read_text)))


def driver(name: str) -> psutil.Process:
    """Who drives the run. Raises psutil.NoSuchProcess if that has ended."""
    return psutil.Process(int((found(name).path / "lock").read_text()))


def kill_all(*roots: psutil.Process) -> None:
    """Kill them, and all that they have started."""
    for one in [child for root in roots for child in (root, *root.children(recursive=True))]:
        with contextlib.suppress(psutil.Error):
            one.kill()
