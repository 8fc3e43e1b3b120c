"""The runner of a queue as a process: `python -m volary.jobs.service FOLDER` detaches itself, and ends when it is idle.

A process that adds to the queue starts one, unless its lock is held. It may be killed at any time: drivers outlive it,
and the next one goes on.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import closing, suppress
from pathlib import Path

from volary.errors import RunError, VolaryError
from volary.jobs.entry import QueueEntry
from volary.jobs.machinery import RunMachinery
from volary.jobs.machines.hosts import known_hosts
from volary.jobs.machines.unqueued import changed_ns
from volary.jobs.processes.wakeups import LOOK_S, WakeUps
from volary.jobs.runner import QueueRunner
from volary.jobs.table import QueueTable
from volary.run.lock import RunLock

LOOK_ANYWAY_S = 10.0  # as time goes by: gaps, and what runs take of memory
LOOK_IDLE_S = 20.0  # where nothing runs: GPUs that others use, and runs outside of the queue that were killed
ASK_S = 0.5
AFTER_FAULT_S = 5.0  # until the queue is tried again, whose disk is full
START_S = 60.0  # for a Python to start


def ensure_runner(table: QueueTable) -> None:
    """Start a runner of the table if it needs one and has none. Raises VolaryError if that cannot be."""
    if table.is_idle() or table.has_runner():
        return
    command = [sys.executable, "-m", "volary.jobs.service", str(table.folder)]
    with table.runner_log.open("ab") as log:
        try:
            done = subprocess.run(
                command,
                cwd=table.folder,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                timeout=START_S,
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise VolaryError(f"the queue's runner could not be started: {error}") from None
    if done.returncode:
        raise VolaryError(f"the queue's runner could not be started: see {table.runner_log}")


def main() -> None:
    """Detach from whoever starts it, and carry the queue out."""
    folder = Path(sys.argv[1])
    with QueueTable(folder) as table:
        file = table.runner_lock
    if os.fork():
        os._exit(0)
    os.setsid()
    with suppress(RunError), RunLock(file) as lock:  # held: somebody else was faster
        _carry_out(folder, lock)


def _carry_out(folder: Path, lock: RunLock) -> None:
    while True:
        try:
            with QueueTable(folder) as table:
                for remark in table.remarks:
                    _note(remark)
                if _until_idle(table, lock):
                    return
        except VolaryError as error:
            _note(str(error))
            time.sleep(AFTER_FAULT_S)


def _until_idle(table: QueueTable, lock: RunLock) -> bool:
    """Carry it out until nobody runs and nobody can start, or its file has been replaced; whether it was the former."""
    from volary.jobs.machines.host_watch import HostWatch  # not for those who only start a runner

    with closing(RunMachinery(table)) as machinery, closing(WakeUps(table.folder)) as wakeups:
        runner, hosts = QueueRunner(table, machinery, _note), HostWatch(table.folder)
        while table.is_current():
            before = _as_others_left_it(table)
            with machinery.alone():
                runner.look()
            seen = machinery.notices_seen()
            while machinery.remarks:
                _note(machinery.remarks.pop())
            if table.is_idle():
                machinery.close()  # nothing of it outlives the lock
                if table.left_idle(lock.release):
                    return True
            entries = table.entries()
            if problem := hosts.ask({one.folder for one in entries if one.movable}):
                _note(problem)
            entries = [one for one in entries if one.state != "waiting"]
            until = time.monotonic() + _next_look_s(entries, machinery.moment().now_s)
            while (left_s := until - time.monotonic()) > 0 and table.is_current():
                same = before == _as_others_left_it(table) and seen == machinery.notices_seen()
                if not same or not all(map(machinery.is_alive, entries)):
                    break
                wakeups.wait(min(left_s, LOOK_S) if machinery.is_shared else left_s, [one.pid for one in entries])
    return False


def _as_others_left_it(table: QueueTable) -> object:
    """Differs once somebody else has changed the queue, or what is known of its machines."""
    return table.version(), known_hosts(table.folder), changed_ns()


def _next_look_s(underway: Sequence[QueueEntry], now_s: float) -> float:
    """Rarer and rarer after a start: what a short run takes of memory is seen, too."""
    if not underway:
        return LOOK_IDLE_S
    if any(one.state == "stopping" for one in underway):
        return ASK_S
    youngest_s = min(now_s - one.started_s for one in underway)
    return min(LOOK_ANYWAY_S, max(ASK_S, youngest_s))


def _note(line: str) -> None:
    print(time.strftime("%Y-%m-%d %H:%M:%S"), line, flush=True)


if __name__ == "__main__":
    main()
