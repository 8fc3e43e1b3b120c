"""Starts processes quickly: `python -m volary.fork_server` imports once what takes seconds, and is then forked.

Its driver (volary.engine.processes.fork_server) is at the other end of its standard input, a socket. An order comes as
the descriptor of a file that says what to start; the answer is a line: the new processes by their ids, or an errno.
They are the driver's own children: a process in between forks all of them and ends, and those who have no parent any
more are adopted by the driver, which has asked the kernel for that. So nobody depends on this process once they run.
"""

from __future__ import annotations

import atexit
import gc
import io
import json
import os
import runpy
import select
import signal
import socket
import sys
import threading
import traceback
from collections.abc import Iterable
from contextlib import suppress
from importlib import import_module
from typing import Any, NoReturn

from volary.run.launch.parent import die_with_parent
from volary.run.machine.allocator import take_huge_pages

IDLE_S = 60.0  # without an order for so long it ends: it holds as much memory as a worker
MODULES = (
    *("encodings.idna", "cryptography.hazmat.backends.openssl.backend", "safetensors.torch", "torch.profiler"),
    *("torch.distributed", "torch.utils.serialization.config", "volary.comm.control.connection", "ruamel.yaml"),
    *("volary.train.member.process", "volary.train.worker.job", "volary.train.own.startup.run_script"),
    *(
        "volary.train.own.startup.run_program",
        "volary.train.served.server.serve",
        "volary.network.criteria.classification",
    ),
)
_WRITERS = (io.BufferedWriter, io.BufferedRandom, io.TextIOWrapper)


def main() -> None:
    """Import, then carry out orders until the driver has gone, or has had none for a while."""
    die_with_parent()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # for the driver to answer, which ends this process
    os.sched_setaffinity(0, map(int, sys.argv[1].split(",")))  # a worker's: some libraries look when they are loaded
    control = socket.socket(fileno=0)
    gc.disable()  # nothing of what is imported becomes garbage
    take_huge_pages()  # whoever is forked could not, if torch has made a tensor here
    _import(MODULES)
    with suppress(Exception):
        from volary.train.member.compare import installed_facts

        installed_facts()
    while (order := _next(control)) is not None:
        _import(order["modules"])
        gc.freeze()  # else the first collection in each process would make a copy of its own of all that
        _carry_out(order, control)


def _import(modules: Iterable[str]) -> None:
    for name in modules:
        with suppress(Exception):  # whoever needs it imports it again, and its log says what is wrong
            import_module(name)


def _next(control: socket.socket) -> dict[str, Any] | None:
    with suppress(ConnectionError):
        if select.select([control], [], [], IDLE_S)[0]:
            _, files, _, _ = socket.recv_fds(control, 1, 1)
            for file in files:
                with os.fdopen(file, "rb") as order:
                    order.seek(0)
                    found: dict[str, Any] = json.load(order)
                    return found
    return None


def _carry_out(order: dict[str, Any], control: socket.socket) -> None:
    """Nobody begins before the driver can know who it is: without its byte of `go` a process ends at once."""
    (hold, go), (answered, answers) = os.pipe(), os.pipe()
    between = os.fork()
    if between == 0:
        os.close(go)
        os.close(answered)
        _fork_all(order, hold, answers)
    os.close(hold)
    os.close(answers)
    with os.fdopen(answered, "rb") as file:
        answer = file.read()
    os.waitpid(between, 0)  # only then all are adopted
    try:
        control.sendall(answer + b"\n")
        if answer.startswith(b"["):
            os.write(go, bytes(len(order["processes"])))
    except ConnectionError:
        pass
    finally:
        os.close(go)


def _fork_all(order: dict[str, Any], hold: int, answers: int) -> NoReturn:
    answer: list[int] | dict[str, int | None] = []
    try:
        for process in order["processes"]:
            pid = os.fork()
            if pid == 0:
                os.close(answers)
                _be(order, process, hold)
            answer.append(pid)  # type: ignore[union-attr]  # until an error it is a list
    except OSError as error:
        answer = {"errno": error.errno}
    with os.fdopen(answers, "wb") as file:
        file.write(json.dumps(answer).encode())
    os._exit(0)


def _be(order: dict[str, Any], process: dict[str, Any], hold: int) -> NoReturn:
    """Be one of the processes, from its first moment to its last."""
    code = 1
    try:
        os.setsid()  # Ctrl-C in the terminal is the driver's to answer
        signal.signal(signal.SIGINT, signal.default_int_handler)
        if not os.read(hold, 1):
            os._exit(code)
        os.close(hold)
        _take_over(order, process)
        sys.argv[1:] = order["arguments"]
        runpy.run_module(order["module"], run_name="__main__", alter_sys=True)
        code = 0
    except SystemExit as ended:
        code = _status(ended.code)
    except KeyboardInterrupt:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGINT)
    except BaseException:
        traceback.print_exc()
    finally:
        _leave(code)


def _take_over(order: dict[str, Any], process: dict[str, Any]) -> None:
    """Have what a process that was started anew would have: folder, environment, cores, files, and chance."""
    for path, flags, places in (
        (os.devnull, os.O_RDONLY, (0,)),
        (process["log"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, (1, 2)),
    ):
        file = os.open(path, flags, 0o666)
        for place in places:
            os.dup2(file, place)
        os.close(file)
    os.chdir(order["folder"])
    if not sys.flags.safe_path:
        sys.path[0] = order["folder"]
    os.sched_setaffinity(0, order["cores"])
    threads = os.environ.get("OMP_NUM_THREADS")
    os.environ.clear()
    os.environ.update(order["environment"] | process["variables"])
    gc.enable()
    _reseed()
    if (mine := os.environ.get("OMP_NUM_THREADS")) != threads and mine and "torch" in sys.modules:
        import torch

        # torch has read the other number; more than the machine has cores it takes from nobody
        torch.set_num_threads(min(int(mine), torch.get_num_threads()))


def _reseed() -> None:
    """Python's own generator is seeded anew after each fork; these are not."""
    if "numpy" in sys.modules:
        import numpy as np

        np.random.seed()
    if "torch" in sys.modules:
        import torch

        torch.default_generator.seed()


def _status(code: Any) -> int:
    """The status of a process that raises SystemExit with that."""
    if code is None or isinstance(code, int):
        return code or 0
    print(code, file=sys.stderr)
    return 1


def _leave(code: int) -> NoReturn:
    """End as Python does, but for taking torch apart, which costs as much as all else that a start does.

    Threads are waited for, what was registered for the exit is called, and what files still hold is written.
    """
    with suppress(BaseException):
        threading._shutdown()  # type: ignore[attr-defined]  # as multiprocessing does
        atexit._run_exitfuncs()
    for file in (sys.stdout, sys.stderr, *gc.get_objects()):  # not those of before the fork, which are frozen
        if issubclass(type(file), _WRITERS):
            with suppress(Exception):
                file.flush()
    os._exit(code)


if __name__ == "__main__":
    main()
