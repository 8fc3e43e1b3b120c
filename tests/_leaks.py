"""A test leaves nothing behind: processes, threads, shared memory and files are looked at before and after.

Processes and threads are this process's own. Shared memory and files are the machine's: where tests run in parallel, it
cannot be told which of them left what nobody holds any more, and the whole run is looked at instead (`common`).
"""

from __future__ import annotations

import contextlib
import ctypes
import multiprocessing.forkserver
import multiprocessing.resource_tracker
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil  # type: ignore[import-untyped]

from volary.engine.processes import fork_server

CHECKOUT = Path(__file__).resolve().parent.parent
SHARED_MEMORY = Path("/dev/shm")
GRACE_S = 20.0  # what is on its way out gets this long, on a busy machine, too
_PR_SET_CHILD_SUBREAPER = 36
_CACHES = {"__pycache__", ".pytest_cache", ".mypy_cache", ".ruff_cache", ".hypothesis", ".venv"}


def adopt_orphans() -> None:
    """Become the parent of every grandchild whose own parent goes: otherwise those left would be out of sight."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


@contextlib.contextmanager
def orphans_waited_for() -> Iterator[None]:
    """For programs that wait until a grandchild is gone, not only dead: what was adopted is waited for when it ends.

    Children of this process's own are waited for at once by who started them: the dead of some seconds are others'.
    """
    over, dead_since = threading.Event(), dict[int, float]()

    def wait_for_them() -> None:
        while not over.wait(0.5):
            for child in psutil.Process().children():
                with contextlib.suppress(psutil.NoSuchProcess, ChildProcessError):
                    dead = child.status() == psutil.STATUS_ZOMBIE
                    if dead and time.monotonic() - dead_since.setdefault(child.pid, time.monotonic()) > 2:
                        os.waitpid(child.pid, os.WNOHANG)

    thread = threading.Thread(target=wait_for_them)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def common() -> dict[str, frozenset[Path]]:
    """Entries that all tests of a run share and may not leave anything in, by what each is."""
    return {"shared memory": _entries(SHARED_MEMORY), "file in the checkout": _checkout()}


def left_in_common(before: dict[str, frozenset[Path]]) -> list[str]:
    """One line for each thing that a whole run left, which others of this machine do not use."""
    return [f"{what} {path}" for what, paths in common().items() for path in paths - before[what] if not _holders(path)]


def _alone() -> bool:
    """Whether no other tests run beside this process's."""
    return "PYTEST_XDIST_WORKER" not in os.environ


@dataclass(frozen=True)
class Surroundings:
    """All there is at a moment. processes: ours, by (pid, start). files: in the checkout, which nobody may fill."""

    processes: frozenset[psutil.Process]
    threads: frozenset[threading.Thread]
    segments: frozenset[Path]
    files: frozenset[Path]

    @classmethod
    def now(cls) -> Surroundings:
        """Look around."""
        return cls(_processes(), _threads(), _entries(SHARED_MEMORY), _checkout() if _alone() else frozenset())

    def left_since(self) -> list[str]:
        """One line for each thing that is there now, was not then, and does not go within the grace."""
        left: dict[str, list[str]] = {}
        segments = _entries(SHARED_MEMORY) - self.segments  # later ones are of others, who make new ones all the time

        def settled() -> bool:
            now = Surroundings.now()
            left["processes"] = [_describe(process) for process in now.processes - self.processes]
            left["threads"] = [f"thread {thread.name!r}" for thread in now.threads - self.threads]
            left["segments"] = [f"shared memory {path}" for path in now.segments & segments if _ours(path)]
            left["files"] = [f"file in the checkout: {path.name}" for path in now.files - self.files]
            return not any(left.values())

        _within(GRACE_S, settled)
        return [line for lines in left.values() for line in lines]

    def clear(self) -> None:
        """End the processes and remove the segments that were left, so that only one test fails for them."""
        for process in _processes() - self.processes:
            with contextlib.suppress(psutil.Error):
                for one in [*process.children(recursive=True), process]:
                    one.kill()
                process.wait(GRACE_S)
        for path in _entries(SHARED_MEMORY) - self.segments:
            if _ours(path):
                path.unlink(missing_ok=True)


def _within(seconds: float, condition: Callable[[], bool]) -> None:
    until = time.monotonic() + seconds
    while not condition() and time.monotonic() < until:
        time.sleep(0.02)


def _processes() -> frozenset[psutil.Process]:
    # the two that multiprocessing keeps for as long as this process lives, and what its runs are forked from
    tracker: Any = multiprocessing.resource_tracker._resource_tracker
    server: Any = multiprocessing.forkserver._forkserver
    kept = {tracker._pid, server._forkserver_pid, *(one.pid for one in fork_server._started)}
    return frozenset(child for child in _children() if child.pid not in kept and _lives(child))


def _children() -> list[psutil.Process]:
    """Ours, as the kernel lists them: psutil would ask every process of the machine for its parent, in every test."""
    found = []
    try:
        for task in Path("/proc/self/task").iterdir():
            for pid in (task / "children").read_text().split():
                with contextlib.suppress(psutil.NoSuchProcess):
                    found.append(psutil.Process(int(pid)))
    except OSError:  # another kernel, or a thread that has just ended
        return psutil.Process().children()
    return found


def _lives(process: psutil.Process) -> bool:
    try:
        return bool(process.status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


def _describe(process: psutil.Process) -> str:
    with contextlib.suppress(psutil.Error):
        return f"process {process.pid}: {' '.join(process.cmdline())[:200]}"
    return f"process {process.pid}"


def _threads() -> frozenset[threading.Thread]:
    # dummies are native threads (torch's autograd) that called Python once; nobody can join them
    return frozenset(t for t in threading.enumerate() if not isinstance(t, threading._DummyThread))


def _entries(folder: Path) -> frozenset[Path]:
    if not folder.is_dir():
        return frozenset()
    return frozenset(path for path in folder.iterdir() if path.name not in _CACHES)


def _checkout() -> frozenset[Path]:
    return _entries(CHECKOUT) | _entries(CHECKOUT / "runs")


def _ours(segment: Path) -> bool:
    """Whether this process's tests have to answer for a segment: other runs share the machine."""
    ours = {os.getpid(), *(child.pid for child in psutil.Process().children(recursive=True))}
    holders = _holders(segment)
    return holders <= ours if _alone() else bool(holders & ours)


def _holders(segment: Path) -> set[int]:
    """The processes that have it mapped."""
    found = set()
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, OSError):
            if any(mapped.path == str(segment) for mapped in process.memory_maps()):
                found.add(process.pid)
    return found
