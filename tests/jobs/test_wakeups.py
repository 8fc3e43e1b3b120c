"""Wake-ups of a runner that waits: by changes of its queue, runs beside it that end, and the ends of its drivers."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from faults._running import BUSY
from volary.jobs.entry import Demand, HostCapacity, QueueEntry
from volary.jobs.machines.hosts import keep_hosts
from volary.jobs.machines.unqueued import counted
from volary.jobs.processes.wakeups import PIPE, WakeUps, wake_runner
from volary.jobs.table import QueueTable, queue_folder
from volary.run.directory import RunDirectory

LONG_S = 3600.0


@pytest.fixture
def table(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[QueueTable]:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    with QueueTable(queue_folder()) as table:
        yield table


@pytest.fixture
def wakeups(table: QueueTable) -> Iterator[WakeUps]:
    with closing(WakeUps(table.folder)) as wakeups:
        yield wakeups


def is_woken(wakeups: WakeUps, *processes: int) -> bool:
    """Whether it need not wait as long as it may."""
    waits = threading.Thread(target=wakeups.wait, args=(LONG_S, processes), daemon=True)
    waits.start()
    waits.join(BUSY * 5)
    return not waits.is_alive()


def made(name: str) -> RunDirectory:
    return RunDirectory.create(Path("runs"), name, "it", "network: lenet\n")


def test_a_change_of_the_queue_wakes_its_runner_once(table, wakeups):
    table.add(QueueEntry(run=str(made("a").path), demand=Demand()), {})
    assert is_woken(wakeups)
    wakeups.wait(0, ())
    assert not wakeups._poll.poll(0), "nothing is left to be woken by"
    table.remove(str(made("b").path))
    assert is_woken(wakeups)


def test_what_is_known_of_other_machines_and_the_end_of_a_run_beside_the_queue_wake_it(table, wakeups):
    keep_hosts(table.folder, (HostCapacity("alpha"),))
    assert is_woken(wakeups)
    with made("a").lock(), counted(RunDirectory("runs/a"), [0]):
        assert not wakeups._poll.poll(0)
    assert is_woken(wakeups)


def test_the_end_of_a_driver_wakes_it_which_need_not_be_its_child(wakeups):
    command = "sleep 600 >/dev/null & echo $!"  # sh has gone then: it is no child of this process
    other = int(subprocess.run(["sh", "-c", command], stdout=subprocess.PIPE, check=True).stdout)
    wakeups.wait(0, [other])
    assert not wakeups._poll.poll(0)
    os.kill(other, signal.SIGKILL)
    assert wakeups._poll.poll(BUSY * 5000)
    assert is_woken(wakeups, other)
    assert is_woken(wakeups, other), "now and then: what it has begun may end later"
    assert is_woken(wakeups, 0), "as nobody knows it"


def test_a_runner_that_was_killed_leaves_its_pipe_to_the_next_one_and_nobody_waits_for_it(table):
    wake_runner(table.folder)
    with closing(WakeUps(table.folder)):
        pass
    assert (table.folder / PIPE).is_fifo()
    wake_runner(table.folder)
    with closing(WakeUps(table.folder)) as wakeups:
        assert not wakeups._poll.poll(0)
        for _ in range(100_000):  # more than a pipe has room for
            wake_runner(table.folder)
        assert is_woken(wakeups)


def test_on_a_disk_that_takes_no_pipe_it_looks_now_and_then(monkeypatch, table):
    def none(*_: object, **__: object) -> None:
        raise OSError(errno.EPERM, "no pipes here")

    monkeypatch.setattr(os, "mkfifo", none)
    with closing(WakeUps(table.folder)) as wakeups:
        wake_runner(table.folder)
        assert is_woken(wakeups)
