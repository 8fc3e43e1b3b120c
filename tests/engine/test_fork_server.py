"""Workers of engine `local` are forked, and nobody can tell it from a start: but for the time that it takes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from volary.engine._base import Exited, Handle, Launch
from volary.engine.local import LocalEngine
from volary.engine.processes import fork_server
from volary.engine.torchrun import TorchrunEngine
from volary.run.directory import RunDirectory
from volary.run.launch.meeting import Meeting
from volary.run.machine.cores import cores_here

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="elsewhere processes are started, not forked")

TELL = """
import json, os, signal, sys
loaded = "torch" in sys.modules
import torch
print(json.dumps({
    "arguments": sys.argv, "name": __name__, "folder": os.getcwd(), "path": sys.path, "umask": os.umask(0o22),
    "environment": dict(os.environ), "cores": sorted(os.sched_getaffinity(0)), "threads": torch.get_num_threads(),
    "parallel": [line for line in torch.__config__.parallel_info().splitlines() if "max_threads" in line],
    "input": sys.stdin.read(), "own session": os.getsid(0) == os.getpid(), "child": os.getppid(),
    "signals": [str(signal.getsignal(one)) for one in (signal.SIGINT, signal.SIGTERM, signal.SIGPIPE)],
    "files": sorted(os.readlink(f"/proc/self/fd/{one}") for one in range(3)),
    "open": len(os.listdir("/proc/self/fd")), "nice": os.nice(0), "loaded": loaded,
}))
"""


@pytest.fixture
def launched() -> Iterator[Callable[..., Handle]]:
    """`launched(code, workers)`: that many processes of a module of this code."""
    handles: list[Handle] = []
    directory = RunDirectory.create(Path("runs"), "it", "x", "network: lenet\n")

    def launch(code: str, workers: int = 1, *arguments: str, engine: LocalEngine | None = None) -> Handle:
        Path("task.py").write_text(code)
        wish = Launch(
            role="worker",
            directory=directory,
            command=[sys.executable, "-m", "task", *arguments],
            count=workers,
            meeting=Meeting("127.0.0.1", 1234, attempt=0, attempt_id="one"),
        )
        handles.append((engine or LocalEngine()).launch(wish))
        return handles[-1]

    yield launch
    for handle in handles:
        handle.stop(0.0)


@pytest.fixture
def alone() -> Iterator[None]:
    """No fork server runs before."""
    fork_server._end()
    fork_server._started.clear()
    yield


def wait_until(condition: Callable[[], Any], at_most_s: float = 120) -> Any:
    until = time.monotonic() + at_most_s
    while not (value := condition()):
        assert time.monotonic() < until, "waited in vain"
        time.sleep(0.01)
    return value


def all_exits(handle: Handle, workers: int = 1) -> list[Exited]:
    found: list[Exited] = []
    wait_until(lambda: found.extend(handle.events()) or len(found) == workers)
    return sorted(found, key=lambda gone: gone.rank)


def log(rank: int = 0) -> str:
    return Path(f"runs/it/logs/worker-{rank}.log").read_text()


def test_a_forked_worker_finds_what_a_started_one_finds_and_has_torch_before(launched, monkeypatch):
    monkeypatch.setenv("MY_OWN", "kept")
    all_exits(launched(TELL, 1, "--steps", "3"))
    forked = json.loads(log())
    Path("runs/it/logs/worker-0.log").unlink()
    monkeypatch.setattr("volary.engine.local.fork_server", lambda _: None)
    all_exits(launched(TELL, 1, "--steps", "3"))
    started = json.loads(log())
    assert (forked.pop("loaded"), started.pop("loaded")) == (True, False)
    assert forked == started
    assert forked["child"] == os.getpid()
    assert forked["environment"]["MY_OWN"] == "kept"
    assert forked["cores"] == cores_here()


@pytest.mark.slow  # workers more
def test_numbers_at_random_are_others_in_each(launched):
    code = "import random, numpy, torch; print(random.random(), numpy.random.rand(), torch.rand(1).item())"
    for _ in range(2):
        all_exits(launched(code))
    one, other = log().splitlines()
    assert not set(one.split()) & set(other.split())


@pytest.mark.slow  # what is forked comes above
def test_the_next_run_of_a_process_waits_for_no_import(launched):
    code = "import sys; print(all(name in sys.modules for name in ('torch.distributed', 'volary.train.worker.job')))"
    all_exits(launched(code))
    (server,) = fork_server._started
    all_exits(launched(code))
    assert [one.pid for one in fork_server._started] == [server.pid]
    assert log() == "True\nTrue\n"


def test_workers_do_not_depend_on_the_fork_server(launched):
    handle = launched("import time\nprint('here', flush=True)\ntime.sleep(600)")
    wait_until(log)
    os.kill(fork_server._started[0].pid, signal.SIGKILL)
    wait_until(lambda: psutil.Process(fork_server._started[0].pid).status() == psutil.STATUS_ZOMBIE)
    assert (handle.events(), handle.running()) == ([], {0})
    os.kill(handle.pids()[0], signal.SIGKILL)
    assert all_exits(handle) == [Exited(0, -signal.SIGKILL, signal.SIGKILL)]


@pytest.mark.slow  # what is forked comes above
def test_processes_end_as_they_would_and_lose_nothing(launched):
    code = """
import atexit, os, sys, threading, time
match int(os.environ["VOLARY_RANK"]):
    case 0:
        atexit.register(print, "at exit")
        file = open("kept", "w")
        file.write("not closed")
        threading.Timer(0.2, print, ["a thread"]).start()
    case 1: sys.exit(7)
    case 2: sys.exit("a reason")
    case 3: raise ValueError("my own")
    case 4: os.abort()
    case 5: raise KeyboardInterrupt
"""
    exits = all_exits(launched(code, 6), 6)
    assert [gone.code for gone in exits] == [0, 7, 1, 1, -signal.SIGABRT, -signal.SIGINT]
    assert (log(0), Path("kept").read_text()) == ("a thread\nat exit\n", "not closed")
    assert log(2) == "a reason\n"
    assert log(3).startswith("Traceback") and log(3).endswith("ValueError: my own\n")


def test_no_thread_is_there_when_workers_are_forked(launched):
    workers = len(cores_here())  # else NumPy's own library has one for each core of a worker, and ends them itself
    all_exits(launched("pass", workers), workers)
    (server,) = fork_server._started
    assert len(psutil.Process(server.pid).threads()) == 1


@pytest.mark.slow  # two fork servers import torch
def test_another_environment_is_found_by_what_is_started_next(launched, monkeypatch, alone):
    code = "import os; print(os.environ.get('MY_OWN'))"
    all_exits(launched(code))
    monkeypatch.setenv("MY_OWN", "new")
    all_exits(launched(code))
    assert log() == "None\nnew\n"
    assert len(fork_server._started) == 1, "the one before has ended"


@pytest.mark.slow  # workers that import torch one by one
def test_workers_start_also_if_the_fork_server_is_killed_while_it_imports(launched, alone):
    handle = launched("import os; print(os.environ['VOLARY_RANK'])", 2)
    assert handle.running() == {0, 1}
    os.kill(fork_server._started[0].pid, signal.SIGKILL)
    assert [gone.code for gone in all_exits(handle, 2)] == [0, 0]
    assert (log(0), log(1)) == ("0\n", "1\n")


@pytest.mark.parametrize("how", ["stop", "ask_to_end"])
def test_what_is_not_wanted_any_more_never_starts(launched, alone, how):
    handle = launched("print('here')", 2)
    handle.stop(0.0) if how == "stop" else handle.ask_to_end()
    assert (handle.running(), handle.pids(), handle.events()) == (set(), {}, [])
    assert log(0) == log(1) == ""


def test_a_log_that_cannot_be_written_is_said_at_once(launched):
    Path("runs/it/logs").rmdir()
    with pytest.raises(FileNotFoundError):
        launched("pass")


def test_a_fork_server_ends_with_its_driver(alone):
    code = (
        "import time; from volary.engine.local import LocalEngine; from volary.engine.processes import fork_server\n"
        "LocalEngine().prepare(2); print(fork_server._started[0].pid, flush=True); time.sleep(600)"
    )
    source = str(Path(fork_server.__file__).parents[3])
    with subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, env=os.environ | {"PYTHONPATH": source}
    ) as driver:
        assert driver.stdout is not None
        server = psutil.Process(int(driver.stdout.readline()))
        driver.kill()
    wait_until(lambda: not server.is_running() or server.status() == psutil.STATUS_ZOMBIE)


def test_where_cores_are_bound_for_the_whole_process_workers_are_started_one_by_one(launched, alone, monkeypatch):
    monkeypatch.setenv("OMP_PROC_BIND", "true")
    all_exits(launched("import sys; print('torch' in sys.modules)"))
    assert (log(), fork_server._started) == ("False\n", [])


@pytest.mark.slow  # a fork server and two processes import torch
def test_servers_of_a_run_come_from_the_same_fork_server_with_threads_of_their_own(launched, alone, monkeypatch):
    monkeypatch.setattr("volary.engine.local.cores_here", lambda: sorted(os.sched_getaffinity(0)) * 4)
    directory = RunDirectory.create(Path("runs"), "other", "x", "network: lenet\n")
    Path("task.py").write_text(TELL)
    servers = Launch(
        role="server",
        directory=directory,
        command=[sys.executable, "-m", "task"],
        count=1,
        meeting=Meeting("127.0.0.1", 1234, attempt=0, attempt_id="one"),
        beside=1,
    )
    for engine in (LocalEngine(pin=False), TorchrunEngine()):
        handle = engine.launch(servers)
        all_exits(handle)
        handle.stop(0.0)
    told = [json.loads(line) for line in directory.server_log(0).read_text().splitlines()]
    all_exits(launched("pass", engine=LocalEngine(pin=False)))
    assert {one["environment"]["OMP_NUM_THREADS"] for one in told} == {str(2 * len(cores_here()))}
    assert len(fork_server._started) == 1
