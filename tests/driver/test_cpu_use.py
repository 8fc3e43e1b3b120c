"""A process that works is told from one that is stopped."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import psutil

from volary.driver.watching.cpu_use import CpuUse


def until(condition) -> None:
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_process_that_computes_works_and_one_that_is_stopped_or_gone_does_not():
    child = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    try:
        use = CpuUse()
        until(lambda: use.working({3: child.pid}) == {3})
        os.kill(child.pid, signal.SIGSTOP)
        until(lambda: psutil.Process(child.pid).status() == psutil.STATUS_STOPPED)
        use.working({3: child.pid})  # what it had used until then
        assert [use.working({3: child.pid}) for _ in range(20)] == [set()] * 20
        os.kill(child.pid, signal.SIGCONT)
        until(lambda: use.working({3: child.pid}) == {3})
    finally:
        child.kill()
        child.wait()
    assert use.working({3: child.pid}) == set()


def test_process_that_sleeps_does_not_work():
    child = subprocess.Popen(["sleep", "60"])
    try:
        use = CpuUse()
        until(lambda: psutil.Process(child.pid).status() == psutil.STATUS_SLEEPING)
        until(lambda: use.working({0: child.pid}) == set())
        assert use.working({0: child.pid}) == set()
    finally:
        child.kill()
        child.wait()
