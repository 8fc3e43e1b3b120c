"""`python -m volary.machine_agent`: what ssh starts for an engine on a machine.

It starts processes there, and ends them. Its order comes by standard input, which no other user can read, and it
tells by standard output what becomes of them. A connection that ends, however that happened, ends them, too.
"""

from __future__ import annotations

import contextlib
import os
import select
import sys
import tarfile
import tempfile
import time
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import msgspec

import volary
from volary.comm.files.client import FileClient
from volary.engine.processes.processes import NewProcess, Processes
from volary.engine.remote.messages import END, KILL, MachineFound, RemoteExited, RemoteLaunch, RemoteStarted
from volary.errors import BadInput, VolaryError
from volary.run.directory import RunDirectory
from volary.run.launch.assignment import SCRATCH, Assignment
from volary.run.machine.cores import cores_here
from volary.run.machine.descendants import below, end
from volary.run.machine.gpus import gpus_here
from volary.run.machine.memory import total_bytes

LOOK_S = 0.1
ALONE_S = 7.0  # without a connection: how long they have to finish their step, save and end
LOOK = "--look"
REACHED_WITHIN_S = 15.0
CARRIED_WITHIN_S = 2.0
LAST_BYTES = 2**20  # of a log; what was before has come
_READ_BYTES = 2**16


def main() -> int:
    """Carry out one order, or say what there is; returns the exit code."""
    try:
        if sys.argv[1:2] == [LOOK]:
            _say(_found(sys.argv[2:]))
            return 0
        words = _Words()
        _carry_out(msgspec.json.decode(words.line(), type=RemoteLaunch), words)
        return 0
    except VolaryError as error:
        print(error.report, file=sys.stderr)
        return error.exit_code


def _found(folders: Sequence[str]) -> MachineFound:
    gpus = gpus_here()
    return MachineFound(
        volary=volary.__version__,
        torch=find_spec("torch") is not None,
        cores=cores_here(),
        memory_bytes=total_bytes(),
        folders=[folder for folder in folders if Path(folder).is_dir()],
        gpus=list(gpus),
        used_gpus=[number for number, computes in gpus.items() if computes],
    )


def _carry_out(order: RemoteLaunch, words: _Words) -> None:
    assignment = Assignment.found(order.variables)
    assert assignment is not None, "an order is of a run"
    _enter(order, words)
    if order.cores and hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, order.cores)  # what is started inherits it
    carrier = _Carrier(order, assignment)
    processes = Processes()
    with tempfile.TemporaryDirectory(prefix="volary-", ignore_cleanup_errors=True) as scratch:
        carrier.scratch = Path(scratch)
        more = {SCRATCH: scratch, "VOLARY_DRIVER": str(os.getpid())}
        try:
            for number, (command, place) in order.commands().items():
                # until it has a log of its own, what it prints is read where the connection began
                processes.start(number, NewProcess(command, order.variables | place | more, Path("/dev/stderr")))
            _say(RemoteStarted(processes.pids()))
            _see_to(processes, words, carrier, order)
        finally:
            _stop(processes)


def _enter(order: RemoteLaunch, words: _Words) -> None:
    """Be in the folder of the order, with what was brought. Raises BadInput."""
    folder = Path(order.folder)
    try:
        if order.brought_bytes:
            folder.mkdir(parents=True, exist_ok=True)
            with tarfile.open(fileobj=words.part(order.brought_bytes), mode="r|") as archive:
                archive.extractall(folder, filter="data")
            words.part_is_over()
        os.chdir(folder)
    except (OSError, tarfile.TarError) as error:
        raise BadInput(f"{os.uname().nodename}: {folder}: {error}") from None


class _Carrier:
    """Sends home the end of a process's log that it may not have sent itself, where the run is not seen here.

    Raises BadInput if the driver, to which all else goes, too, is not reached.
    """

    def __init__(self, order: RemoteLaunch, assignment: Assignment) -> None:
        self._role, self._assignment = order.role, assignment
        self._seen = assignment.is_seen
        self.scratch = Path()
        try:
            if not self._seen:
                self._connected(order.numbers[0], REACHED_WITHIN_S).close()
        except (VolaryError, OSError) as error:
            raise BadInput(
                f"{os.uname().nodename} does not see {assignment.directory}, and does not reach the driver at "
                f"{assignment.meeting.address}: {error}; strategy.interface names the interface on which it listens"
            ) from None

    def carry(self, number: int) -> None:
        """Send the log of a process that has ended."""
        folder = RunDirectory(self.scratch / f"{self._role}-{number}" / self._assignment.directory.name)
        log = folder.log(number) if self._role == "worker" else folder.server_log(number)
        if self._seen or not log.exists():
            return
        with (
            contextlib.suppress(VolaryError, OSError),
            contextlib.closing(self._connected(number, CARRIED_WITHIN_S)) as client,
        ):
            at = max(0, log.stat().st_size - LAST_BYTES)
            client.log(at, log.read_bytes()[at:])

    def _connected(self, number: int, timeout_s: float) -> FileClient:
        key, meeting = self._assignment.key, self._assignment.meeting
        assert key is not None, "it came with the order"
        return FileClient.open(meeting.host, meeting.port, key, meeting.attempt_id, self._role, number, timeout_s)


def _see_to(processes: Processes, words: _Words, carrier: _Carrier, order: RemoteLaunch) -> None:
    """Watch until all have ended: by themselves, or when told to."""
    kill_at: float | None = None
    while processes.running():
        for word in words.arrived(LOOK_S):
            if word == KILL:
                _stop(processes)
            elif word == END:
                processes.ask_to_end()
        if words.over and kill_at is None:
            kill_at = time.monotonic() + ALONE_S
            processes.ask_to_end()
        if kill_at is not None and time.monotonic() > kill_at:
            _stop(processes)
        for gone in processes.events():
            for number in order.numbers if order.launcher else [gone.rank]:
                carrier.carry(number)
            if not order.launcher:  # what becomes of a launcher's processes is seen by their connections
                _say(RemoteExited(gone.rank, gone.code, gone.signal, gone.out_of_memory))


def _stop(processes: Processes) -> None:
    """Kill them, and what they have started: a launcher's processes lead sessions of their own."""
    running = processes.running()
    started = [one for number, pid in processes.pids().items() if number in running for one in below(pid)]
    processes.stop(0.0)
    end(started)


def _say(what: Any) -> None:
    with contextlib.suppress(OSError):  # nobody is there any more
        os.write(sys.stdout.fileno(), msgspec.json.encode(what) + b"\n")


class _Words:
    """Reads standard input: lines, and in between a part of so many bytes. over: nothing comes any more."""

    def __init__(self) -> None:
        self.over = False
        self._pending = b""
        self._left = 0

    def line(self) -> bytes:
        """The next line, however long it takes. Raises BadInput if there is none."""
        while b"\n" not in self._pending:
            if not self._wait(None):
                raise BadInput("the connection ended before the order was here")
        line, _, self._pending = self._pending.partition(b"\n")
        return line

    def arrived(self, at_most_s: float) -> list[bytes]:
        """The lines that have come; waits for them so long."""
        if self.over:
            time.sleep(at_most_s)
            return []
        self._wait(at_most_s)
        *lines, self._pending = self._pending.split(b"\n")
        return [line + b"\n" for line in lines]

    def part(self, size: int) -> Any:
        """The next `size` bytes, as a file to be read."""
        self._left = size
        return self

    def read(self, most: int) -> bytes:
        """Read of the part; empty at its end, or where the connection ended."""
        while self._left and not self._pending:
            if not self._wait(None):
                return b""
        data = self._pending[: min(most, self._left)]
        self._pending, self._left = self._pending[len(data) :], self._left - len(data)
        return data

    def part_is_over(self) -> None:
        """Pass over what nobody has read of the part. Raises BadInput if it has not come."""
        while self._left:
            if not self.read(_READ_BYTES):
                raise BadInput("the connection ended before all folders were here")

    def _wait(self, at_most_s: float | None) -> bool:
        """Take what comes; False where nothing does."""
        ready, _, _ = select.select([sys.stdin], [], [], at_most_s)
        data = os.read(sys.stdin.fileno(), _READ_BYTES) if ready else b""
        self.over = self.over or (bool(ready) and not data)
        self._pending += data
        return bool(data)


if __name__ == "__main__":
    sys.exit(main())
