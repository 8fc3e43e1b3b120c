"""Real worker processes for a test: started, joined in a group on loopback, bounded, their traceback the test's."""

from __future__ import annotations

import contextlib
import ctypes
import faulthandler
import functools
import importlib.util
import multiprocessing
import multiprocessing.forkserver
import os
import pickle
import secrets
import signal
import sys
import time
import traceback
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from multiprocessing import connection
from multiprocessing.context import BaseContext
from pathlib import Path
from typing import TYPE_CHECKING, Any

from volary.comm.control.board import Board
from volary.comm.control.server import KeyedServer
from volary.errors import PeerLost

if TYPE_CHECKING:
    from volary.comm.groups.group import Group

OTHERS_WITHIN_S = 15.0  # once one worker failed, the others get this long to say what they saw
COLLECTIVE_WITHIN_S = 240.0
STACK_WITHIN_S = 10.0
PRELOADED = "_preloaded"  # forked for each worker
_PR_SET_PDEATHSIG = 1


_group: Group | None = None  # of a worker's process


def joined(attempt: int = 0) -> Group:
    """The group of all workers of the call, in one of them; another attempt sees nothing that is posted in this one."""
    assert _group is not None, "this is no worker of a test"
    return _group.within(f"attempt {attempt}")


def alone() -> Group:
    """The group of somebody who has no others."""
    from torch.distributed import HashStore

    from volary.comm.groups.group import Group
    from volary.train.member.bulletin import BoardBulletin

    return Group(BoardBulletin(HashStore(), 0, 1, 0))


class WorkerError(Exception):
    """A worker ended without a result: it was killed, hung, or raised what cannot be sent."""


@dataclass(frozen=True)
class Job:
    """The work of one worker. The function travels as file and name: a test's module has no name to import it by."""

    rank: int
    world_size: int
    module: str
    file: str
    function: str
    arguments: bytes
    folder: Path
    at_most_s: float
    board: tuple[str, int]
    key: bytes


@dataclass
class Workers:
    """Call it as `workers(n, function, *arguments)`: the results of `function(rank, n, *arguments)`, by rank.

    `function` is of a module's top level; arguments and results are pickled. All n have joined a group (gloo on
    loopback): `joined()` there. Raises what a worker raised, with its traceback as the cause; nothing outlives it.
    """

    folder: Path
    calls: int = field(default=0, init=False)

    def __call__(self, n: int, function: Callable[..., Any], *arguments: Any, at_most_s: float = 300.0) -> list[Any]:
        self.calls += 1
        folder = self.folder / str(self.calls)
        folder.mkdir()
        file = sys.modules[function.__module__].__file__ or ""
        work = (function.__module__, file, function.__qualname__, pickle.dumps(arguments))
        key = secrets.token_bytes(32)
        crew: list[_Worker] = []
        with KeyedServer(key, {"board": Board()}) as server:
            try:
                for rank in range(n):
                    crew.append(_Worker(Job(rank, n, *work, folder, at_most_s, server.address, key)))  # noqa: PERF401
                _wait(crew, time.monotonic() + at_most_s)
            finally:
                for worker in crew:
                    worker.end()
        for worker in sorted(crew, key=_Worker.blame):
            worker.check()
        return [worker.result for worker in crew]


class _Worker:
    """One process, and the report that it sent."""

    def __init__(self, job: Job) -> None:
        self.job = job
        self.stack = _stack(job)
        self.result: Any = None
        self.report: tuple[Any, str] | None = None
        self.ended_at = float("inf")  # stays so if it hangs
        self.pipe, theirs = multiprocessing.Pipe(duplex=False)
        self.process = _context().Process(target=_main, args=(job, theirs), daemon=True, name=f"worker-{job.rank}")  # type: ignore[attr-defined]
        self.process.start()
        theirs.close()

    def hear(self) -> bool:
        """Take the report; False if the worker failed or died without one."""
        try:
            result, text, self.ended_at = pickle.loads(self.pipe.recv_bytes())
        except EOFError:
            self.ended_at = time.monotonic()
            return False
        self.report = (result, text)
        self.result = None if text else result
        return not text

    def end(self) -> None:
        """Nothing of this worker is left after it."""
        if self.ended_at == float("inf"):
            self._ask_for_its_stack()
        if self.report is None or self.report[1]:
            self.process.kill()
        self.process.join(OTHERS_WITHIN_S)
        if self.process.is_alive():
            self.process.kill()
            self.process.join()
        self.pipe.close()

    def _ask_for_its_stack(self) -> None:
        until = time.monotonic() + STACK_WITHIN_S
        if self.stack.exists() and self.process.pid and self.process.is_alive():
            os.kill(self.process.pid, signal.SIGUSR1)
            while not self.stack.stat().st_size and time.monotonic() < until:
                time.sleep(0.02)

    def blame(self) -> tuple[int, float]:
        """Sorts causes before consequences: who died, who failed first, who lost a peer, who hangs."""
        if self.report is None:
            return 0 if self.ended_at < float("inf") else 3, self.ended_at
        return 2 if isinstance(self.report[0], PeerLost) else 1, self.ended_at

    def check(self) -> None:
        """Raise what this worker raised, if it did."""
        name = f"rank {self.job.rank} of {self.job.world_size}"
        if self.report is None:
            hung = self.ended_at == float("inf")
            how = f"did not end within {self.job.at_most_s} s" if hung else f"ended with {self.process.exitcode}"
            raise WorkerError(f"{name} {how}\n{self.stack.read_text() if self.stack.exists() else ''}")
        error, text = self.report
        if text:
            cause = WorkerError(f"{name}:\n{text}")
            raise cause if error is None else error from cause


@functools.cache
def _context() -> BaseContext:
    if sys.platform != "linux":
        return multiprocessing.get_context("spawn")
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([PRELOADED])
    with contextlib.chdir(Path(__file__).parent):  # where it starts it finds that module
        multiprocessing.forkserver.ensure_running()
    return context


def _wait(crew: list[_Worker], until: float) -> None:
    waiting: dict[Any, _Worker] = {worker.pipe: worker for worker in crew}
    while waiting and (left_s := until - time.monotonic()) > 0:
        for pipe in connection.wait(list(waiting), left_s):
            if not waiting.pop(pipe).hear():
                until = min(until, time.monotonic() + OTHERS_WITHIN_S)


def _main(job: Job, pipe: connection.Connection) -> None:
    """A worker process: load the test's module, join the group, call the function, send what came of it."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    with _stack(job).open("w") as stack:
        faulthandler.register(signal.SIGUSR1, file=stack)
        try:
            report = _work(job)
        except BaseException as error:
            report = _failure(error)
        faulthandler.unregister(signal.SIGUSR1)
        pipe.send_bytes(report)


def _stack(job: Job) -> Path:
    return job.folder / f"stack-{job.rank}"


def _failure(error: BaseException) -> bytes:
    text = "".join(traceback.format_exception(error))
    now = time.monotonic()
    try:
        data = pickle.dumps((error, text, now))
        pickle.loads(data)
    except Exception:
        return pickle.dumps((None, text, now))
    return data


def _work(job: Job) -> bytes:
    global _group
    import torch

    from volary.comm.control.store import KeyedStore
    from volary.comm.groups.group import join, leave
    from volary.train.member.bulletin import BoardBulletin
    from volary.train.update.uncompiled import spare_the_compiler

    torch.set_num_threads(1)
    spare_the_compiler()
    function = _load(job)
    arguments = pickle.loads(job.arguments)
    os.chdir(job.folder)
    warnings.simplefilter("error")
    store = KeyedStore.at(*job.board, job.key)
    bulletin = BoardBulletin(store, job.rank, job.world_size, 0)
    _group = join(store, bulletin, torch.device("cpu"), COLLECTIVE_WITHIN_S)
    try:
        return pickle.dumps((function(job.rank, job.world_size, *arguments), "", 0.0))
    except BaseException as error:
        return _failure(error)  # before the group is left, which is when the others fail too
    finally:
        leave()
        store.close()


def _load(job: Job) -> Callable[..., Any]:
    module = sys.modules.get(job.module)
    if module is None:
        spec = importlib.util.spec_from_file_location(job.module, job.file)
        assert spec and spec.loader
        module = sys.modules[job.module] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    found: Any = module
    for part in job.function.split("."):
        found = getattr(found, part)
    return found  # type: ignore[no-any-return]
