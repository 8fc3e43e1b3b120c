"""The engine `local`: processes on this machine, each on its share of the cores, none left behind."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from volary.engine import local
from volary.engine._base import Exited, Handle, Launch
from volary.engine.local import LocalEngine
from volary.run.directory import RunDirectory
from volary.run.launch.meeting import Meeting
from volary.run.machine.cores import cores_here, share_of

TELL = """
import os
print("rank", os.environ["VOLARY_RANK"], flush=True)
print("cores", sorted(os.sched_getaffinity(0)), flush=True)
"""
WAIT = "import signal, sys\nprint('ready', flush=True)\nsignal.pause()\n"
WITH_CHILD = "import subprocess, sys\nprint(subprocess.Popen(['sleep', '600']).pid, flush=True)\n" + WAIT
STUBBORN = "import signal\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\n" + WAIT
KEEPS_ORDER = "import signal, sys\nsignal.signal(signal.SIGTERM, lambda *_: sys.exit(5))\n" + WAIT


@pytest.fixture
def directory() -> RunDirectory:
    return RunDirectory.create(Path("runs"), "it", "x", "network: lenet\n")


def wish(directory: RunDirectory, command: list[str], count: int, **more: Any) -> Launch:
    meeting = Meeting("127.0.0.1", 1234, attempt=3, attempt_id="one")
    kind = {"role": "worker", "job": "module:job", **more}
    return Launch(directory=directory, command=command, count=count, meeting=meeting, **kind)


@pytest.fixture
def launched(directory: RunDirectory) -> Iterator[Callable[..., Handle]]:
    handles: list[Handle] = []

    def launch(code: str, workers: int = 2, **settings: bool) -> Handle:
        handles.append(LocalEngine(**settings).launch(wish(directory, [sys.executable, "-c", code], workers)))
        return handles[-1]

    yield launch
    for handle in handles:
        handle.stop(0.0)


def wait_until(condition: Callable[[], object], at_most_s: float = 20) -> None:
    until = time.monotonic() + at_most_s
    while not condition():
        assert time.monotonic() < until, "waited in vain"
        time.sleep(0.01)


def all_exits(handle: Handle, workers: int = 2) -> list[Exited]:
    found: list[Exited] = []
    wait_until(lambda: found.extend(handle.events()) or len(found) == workers)
    return sorted(found, key=lambda gone: gone.rank)


def test_shares_of_the_cores_are_even_and_cover_them_all():
    for count in range(1, 20):
        cores = list(range(100, 100 + count))
        for workers in range(1, 25):
            shares = [share_of(cores, rank, workers) for rank in range(workers)]
            assert all(shares)
            assert max(map(len, shares)) - min(map(len, shares)) <= 1
            if workers <= count:
                assert [core for share in shares for core in share] == cores
            else:
                uses = [sum(core in share for share in shares) for core in cores]
                assert max(uses) - min(uses) <= 1


def test_worker_stays_on_its_share_and_prints_to_its_own_log(launched, directory):
    import volary.worker

    code = f"import sys; sys.path.insert(0, {str(Path(volary.__file__).parents[1])!r})\n"
    code += "from volary.worker import _stay_on_cores\n_stay_on_cores()\n" + TELL
    assert all_exits(launched(code)) == [Exited(0, 0, None), Exited(1, 0, None)]
    for rank in (0, 1):
        share = share_of(cores_here(), rank, 2)
        assert directory.log(rank).read_text() == f"rank {rank}\ncores {share}\n"


def test_worker_that_is_not_pinned_may_use_all_cores(launched, directory):
    code = "import os; print(os.environ['VOLARY_CORES'])"
    all_exits(launched(code, pin=False))
    assert directory.log(1).read_text().strip() == ",".join(map(str, cores_here()))


def test_worker_is_told_who_it_is_and_keeps_the_users_environment(launched, directory, monkeypatch):
    monkeypatch.setenv("MY_OWN", "kept")
    code = "import json, os; print(json.dumps(dict(os.environ)))"
    all_exits(launched(code, workers=3), workers=3)
    import json

    told = json.loads(directory.log(2).read_text())
    assert {name: told[name] for name in told if name.startswith("VOLARY_") or name == "MY_OWN"} == {
        "VOLARY_RANK": "2",
        "VOLARY_WORLD_SIZE": "3",
        "VOLARY_LIFE": "3",
        "VOLARY_MEET": "127.0.0.1:1234",
        "VOLARY_SERVER_LIFE": "one",
        "VOLARY_RUN": str(directory.path),
        "VOLARY_JOB": "module:job",
        "VOLARY_DRIVER": str(os.getpid()),
        "VOLARY_CORES": ",".join(map(str, share_of(cores_here(), 2, 3))),
        "MY_OWN": "kept",
    }
    assert told["OMP_NUM_THREADS"] == str(len(share_of(cores_here(), 2, 3)))


def test_server_is_told_its_number_and_that_cores_are_shared_with_workers(directory):
    code = "import os; print(os.environ['VOLARY_SERVER'], os.environ['OMP_NUM_THREADS'], 'VOLARY_RANK' in os.environ)"
    handle = LocalEngine().launch(wish(directory, [sys.executable, "-c", code], 2, role="server", beside=2))
    all_exits(handle)
    handle.stop(0.0)
    threads = max(1, len(cores_here()) // 4)
    assert [directory.server_log(number).read_text() for number in (0, 1)] == [
        f"{number} {threads} False\n" for number in (0, 1)
    ]


def test_those_that_join_are_numbered_after_those_that_are_there(directory):
    code = "import os; print(*(os.environ[f'VOLARY_{name}'] for name in ('RANK', 'WORLD_SIZE')))"
    handle = LocalEngine().launch(wish(directory, [sys.executable, "-c", code], 2, first=3))
    assert [gone.rank for gone in all_exits(handle)] == [3, 4]
    handle.stop(0.0)
    assert [directory.log(rank).read_text() for rank in (3, 4)] == ["3 5\n", "4 5\n"]


def test_exit_is_told_once_with_its_status_or_signal(launched):
    handle = launched("import os, sys\nif os.environ['VOLARY_RANK'] == '0': sys.exit(7)\nos.abort()")
    assert all_exits(handle) == [Exited(0, 7, None), Exited(1, -signal.SIGABRT, signal.SIGABRT)]
    assert handle.events() == []


def test_stop_ends_stopped_workers_and_what_they_started_themselves(launched, directory):
    handle = launched(WITH_CHILD)
    wait_until(
        lambda: directory.log(0).read_text().endswith("ready\n") and directory.log(1).read_text().endswith("ready\n")
    )
    children = [psutil.Process(int(directory.log(rank).read_text().split()[0])) for rank in (0, 1)]
    os.kill(handle.pids()[1], signal.SIGSTOP)
    handle.stop(0.0)
    assert all_exits(handle) == [Exited(0, -9, 9), Exited(1, -9, 9)]
    wait_until(lambda: all(not one.is_running() or one.status() == psutil.STATUS_ZOMBIE for one in children))


def test_stop_asks_first_and_kills_whoever_does_not_listen(launched, directory):
    polite, stubborn = launched(KEEPS_ORDER, workers=1), None
    wait_until(lambda: "ready" in directory.log(0).read_text())
    polite.stop(grace_s=20)
    assert all_exits(polite, workers=1) == [Exited(0, 5, None)]
    directory.log(0).unlink()
    stubborn = launched(STUBBORN, workers=1)
    wait_until(lambda: "ready" in directory.log(0).read_text())
    stubborn.stop(grace_s=0.1)
    assert all_exits(stubborn, workers=1) == [Exited(0, -9, 9)]


def test_workers_that_were_started_are_ended_if_a_later_one_cannot_be(directory):
    with pytest.raises(FileNotFoundError):
        LocalEngine().launch(wish(directory, ["/no/such/program"], 2))


def test_more_processes_than_memory_holds_are_refused_and_more_than_cores_are_a_warning(monkeypatch):
    monkeypatch.setattr(local, "cores_here", lambda: [0, 1])
    monkeypatch.setattr(local, "forks", lambda _: False)
    monkeypatch.setattr(local, "available_bytes", lambda: 4 * (local.IMPORTED_BYTES + local.WORKER_BYTES))
    assert LocalEngine().check(3) is None
    assert LocalEngine().warnings(2) == []
    assert LocalEngine().warnings(3) == [
        "strategy.workers is 3, and 2 cores are usable here: workers take turns on them"
    ]
    assert len(LocalEngine().warnings(4)) == 2  # and tight
    refusal = LocalEngine().check(6) or ""
    assert refusal.startswith(
        "6 workers take, at 192 MiB each for Python and torch alone, about 1.1 GiB of memory, and"
    )
    assert refusal.endswith("accepted: up to 3 workers")
    monkeypatch.setattr(local, "available_bytes", lambda: None)
    assert LocalEngine().check(10**6) is None
