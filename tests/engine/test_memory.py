"""Who ran out of memory: counted in the control group of the process itself, never on the whole machine."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from _memory_group import small_memory
from volary.engine._base import Exited
from volary.engine.processes import memory as _memory
from volary.engine.processes.processes import NewProcess, Processes

V1 = """\
31 23 0:28 / /sys/fs/cgroup rw,relatime - tmpfs tmpfs rw,mode=755
34 31 0:31 / {folder}/cpuset rw,relatime - cgroup cgroup rw,cpuset
35 31 0:32 / {folder}/memory rw,relatime shared:9 - cgroup cgroup rw,memory
41 31 0:38 / {folder}/unified rw,relatime - cgroup2 cgroup2 rw
"""
V2 = "30 23 0:26 {root} {folder} rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n"


def machine(mounts: str, groups: str) -> Path:
    """A /proc of process 7."""
    proc = Path("proc").absolute()
    for name, text in (("self/mountinfo", mounts), ("7/cgroup", groups)):
        (proc / name).parent.mkdir(parents=True, exist_ok=True)
        (proc / name).write_text(text)
    return proc


def counting(file: str, kills: int) -> Path:
    path = Path(file).absolute()
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"oom 9\noom_kill {kills}\noom_group_kill 0\n")
    return path


def ended(processes: Processes) -> Exited:
    """The first that has ended."""
    until = time.monotonic() + 30
    while not (gone := processes.events()):
        assert time.monotonic() < until, "waited in vain"
        time.sleep(0.01)
    return gone[0]


@pytest.mark.parametrize("name", ["memory.events.local", "memory.events"])
def test_group_of_version_2_counts_for_itself(name):
    folder = Path("groups").absolute()
    expected = counting(f"groups/user/run.scope/{name}", 3)
    counting("groups/user/memory.events", 50)
    proc = machine(V2.format(root="/", folder=folder), "0::/user/run.scope\n")
    found = _memory.counter(7, proc)
    assert (found, _memory.kills(found)) == (expected, 3)


def test_group_of_version_1_counts_for_itself():
    expected = counting("groups/memory/jobs/a/memory.oom_control", 2)
    proc = machine(V1.format(folder=Path("groups").absolute()), "8:pids:/\n4:memory:/jobs/a\n0::/\n")
    found = _memory.counter(7, proc)
    assert (found, _memory.kills(found)) == (expected, 2)


def test_in_a_container_the_group_that_is_mounted_is_the_root():
    expected = counting("groups/memory.events", 1)
    proc = machine(V2.format(root="/docker/3f", folder=Path("groups").absolute()), "0::/docker/3f\n")
    assert _memory.counter(7, proc) == expected


@pytest.mark.parametrize("groups", ["", "0::/elsewhere\n", "nonsense\n", "0::/..\n"])
def test_where_nothing_is_counted_nobody_has_run_out_of_memory(groups):
    proc = machine(V2.format(root="/docker/3f", folder=Path("groups").absolute()), groups)
    assert _memory.counter(7, proc) is None
    assert _memory.kills(None) == 0
    assert _memory.counter(8, proc) is None, "no such process"
    assert _memory.kills(Path("missing")) == 0


@pytest.mark.parametrize(("number", "grows", "starved"), [(9, True, True), (9, False, False), (11, True, False)])
def test_a_kill_is_for_want_of_memory_if_the_count_of_its_group_grew(monkeypatch, number, grows, starved):
    count = counting("memory.events", 4)
    monkeypatch.setattr(_memory, "counter", lambda _: count)
    processes = Processes()
    processes.start(0, NewProcess(["sleep", "600"], {}, Path("log")))
    try:
        if grows:
            counting("memory.events", 5)
        os.kill(processes.pids()[0], number)
        gone = ended(processes)
        assert (gone.signal, gone.out_of_memory) == (number, starved)
    finally:
        processes.stop(0.0)


@pytest.mark.root
def test_worker_that_is_killed_while_a_stranger_runs_out_of_memory_was_not_out_of_memory():
    starving = [sys.executable, "-c", "kept = []\nwhile True: kept.append(bytearray(2**24))"]
    processes = Processes()
    processes.start(0, NewProcess(["sleep", "600"], {}, Path("log")))
    try:
        with small_memory(64 * 2**20) as group:
            with subprocess.Popen(starving, preexec_fn=group.enter) as stranger:
                assert stranger.wait(timeout=60) == -signal.SIGKILL
            assert _memory.kills(group.counter) == 1
        os.kill(processes.pids()[0], signal.SIGKILL)
        assert ended(processes).out_of_memory is False
    finally:
        processes.stop(0.0)
