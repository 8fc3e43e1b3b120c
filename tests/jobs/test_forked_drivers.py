"""Drivers that are forked when it is their turn: they have the lock, and outlive the process that forks them."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import psutil  # type: ignore[import-untyped]
import pytest

from faults._queue import until
from faults._running import lives
from volary.jobs.processes import forked_drivers
from volary.jobs.processes.forked_drivers import DriverForkServer, DriverProcess, Turn
from volary.run.lock import RunLock, is_held
from volary.run.machine.cores import cores_here

PROGRAM = """
import os, signal, sys, time
from pathlib import Path
from volary.jobs.processes.forked_drivers import wait_for_turn
while not Path("imported").exists():
    time.sleep(0.01)
wait_for_turn()
alone = os.getpid() == os.getsid(0) and signal.getsignal(signal.SIGCHLD) == signal.SIG_DFL
print(sys.argv[1:], sorted(os.sched_getaffinity(0)), os.environ["MINE"], sys.stdin.read() == "" and alone, flush=True)
while not Path("end").exists():
    time.sleep(0.01)
"""


@pytest.fixture
def alike(tmp_path: Path) -> DriverProcess:
    return DriverProcess([sys.executable, "-c", PROGRAM], str(tmp_path), dict(os.environ))


def turn(name: str, core: int) -> Turn:
    return Turn((name, "a.b=c"), (core,), {"MINE": name})


def forked(server: DriverForkServer, given: Turn) -> int | None:
    """The driver of this turn, which holds `<its name>.lock`, as its runner does not any more."""
    name = given.arguments[0]
    with RunLock(Path(f"{name}.lock")) as lock, Path(f"{name}.log").open("ab") as log:
        return server.fork(given, lock.descriptor, log.fileno())


def test_each_begins_on_its_cores_with_its_arguments_and_holds_its_run_when_those_who_started_it_have_gone(alike):
    server = DriverForkServer(alike, Path("log"))
    first, last = turn("a", cores_here()[0]), turn("b", cores_here()[-1])
    assert forked(server, first) is None, "nothing is imported yet"
    assert not is_held(Path("a.lock"))
    Path("imported").touch()
    drivers = [psutil.Process(until(lambda: forked(server, first))), psutil.Process(forked(server, last))]
    server.close()
    for name, given in (("a", first), ("b", last)):
        said = f"['{name}', 'a.b=c'] [{given.cores[0]}] {name} True\n"
        assert until(Path(f"{name}.log").read_text) == said
        assert is_held(Path(f"{name}.lock"))
    Path("end").touch()
    until(lambda: not any(map(lives, drivers)))
    assert not is_held(Path("a.lock"))
    assert not is_held(Path("b.lock"))
    assert Path("log").read_text() == ""


def test_it_ends_with_its_runner_and_what_has_ended_leaves_nothing_of_itself(alike):
    Path("imported").touch()
    Path("end").touch()
    server = DriverForkServer(alike, Path("log"))
    driver = until(lambda: forked(server, turn("a", cores_here()[0])))
    until(lambda: not psutil.pid_exists(driver))
    server._socket.close()  # as the kernel does it for a runner that is killed
    assert server.process.wait(60) == 0
    assert forked(server, turn("a", 0)) is None


def test_of_a_driver_that_begins_late_the_process_is_not_known_and_none_begins_in_its_place(alike, monkeypatch):
    Path("imported").touch()
    server = DriverForkServer(alike, Path("log"))
    begun = psutil.Process(until(lambda: forked(server, turn("a", cores_here()[0]))))
    monkeypatch.setattr(forked_drivers, "ANSWER_S", 0.05)
    server.process.send_signal(signal.SIGSTOP)
    assert forked(server, turn("b", cores_here()[0])) == 0
    assert is_held(Path("b.lock")), "it may begin yet"
    server.process.send_signal(signal.SIGCONT)
    until(lambda: Path("b.log").read_text())
    Path("end").touch()
    until(lambda: not lives(begun) and not is_held(Path("b.lock")))
    server.close()


def test_it_serves_runs_of_the_same_folder_and_environment_and_none_when_it_is_old(alike, monkeypatch):
    Path("imported").touch()
    Path("end").touch()
    server = DriverForkServer(alike, Path("log"))
    other = DriverProcess(alike.command, alike.folder, {**alike.variables, "OTHER": "1"})
    assert server.serves(alike)
    assert not server.serves(other)
    monkeypatch.setattr(forked_drivers, "KEEP_S", 0.0)
    assert server.serves(alike), "as long as it has forked nobody"
    until(lambda: forked(server, turn("a", cores_here()[0])))
    assert not server.serves(alike)
    server.close()
    monkeypatch.undo()
    assert not server.serves(alike), "it has gone"
