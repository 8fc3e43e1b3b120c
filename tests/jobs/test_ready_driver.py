"""Drivers that are started before their turn: told to begin, they have the lock; else they end with their runner."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from faults._queue import until
from volary.jobs.entry import Demand, Given, QueueEntry
from volary.jobs.ready_driver import ReadyDriver
from volary.run.lock import RunLock, is_held
from volary.run.machine.cores import cores_here

PROGRAM = """
import os, sys, time
from pathlib import Path
from volary.jobs.ready_driver import wait_for_turn
Path("ready").touch()
wait_for_turn()
print(sorted(os.sched_getaffinity(0)), os.environ["MINE"], sys.stdin.read() == "", flush=True)
while not Path("end").exists():
    time.sleep(0.01)
"""
ENTRY = QueueEntry(run="a", demand=Demand())


@pytest.fixture
def driver() -> ReadyDriver:
    return ReadyDriver(ENTRY, [sys.executable, "-c", PROGRAM], os.environ, Path("log"))


def test_it_begins_when_it_is_told_on_its_cores_and_holds_its_run_from_then_on(driver):
    core = cores_here()[-1]
    with RunLock(Path("queue.lock")) as lock:
        assert driver.is_for(ENTRY)
        assert driver.start(Given((core,)), {"MINE": "yes"}, lock.descriptor)
    assert is_held(Path("queue.lock")), "be it that it still imports"
    assert until(Path("log").read_text) == f"[{core}] yes True\n"
    assert is_held(Path("queue.lock"))
    Path("end").touch()
    assert driver.process.wait(60) == 0
    assert not is_held(Path("queue.lock"))


def test_it_ends_when_it_is_not_needed_or_its_runner_has_gone(driver):
    driver.close()
    assert driver.process.poll() is not None
    assert not driver.is_for(ENTRY)
    other = ReadyDriver(ENTRY, [sys.executable, "-c", PROGRAM], os.environ, Path("log"))
    until(Path("ready").exists)
    other._socket.close()  # as the kernel does it for a runner that is killed
    assert other.process.wait(60) == 0
    assert Path("log").read_text() == ""
    with RunLock(Path("queue.lock")) as lock:
        assert not driver.start(Given((0,)), {}, lock.descriptor)
