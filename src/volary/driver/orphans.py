"""Workers whose driver was killed: a process of its own waits until they have ended, and says how to resume the run.

Where they train on meanwhile it says how another driver takes the place of the lost one, and ends once one has.

Workers end by themselves (volary.train.member.pulse): after their step and a checkpoint, if they can. This process
only ends those that cannot, as their interpreter hangs. It holds the run's lock as long as one of
them may write, and the driver's terminal. It is started with each attempt of a run and runs without Volary and site
packages, so that it costs next to nothing: only the standard library is imported here.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from volary.run.directory import RunDirectory
    from volary.run.lock import RunLock

LOOK_S = 0.05
STILL_S = 8.0  # workers that show no sign of life for so long, once their driver is gone, are ended
END_WITHIN_S = 5.0
WAITING_S = 2.0  # workers that still show signs of life train on, if they may
_OVER = b"over\n"


@contextlib.contextmanager
def seen_out(directory: RunDirectory, lock: RunLock, wait_s: float) -> Iterator[Callable[[Iterable[int]], None]]:
    """Yield a function to call with workers' processes: if this process is killed, they do not outlive it for long.

    wait_s: for how long they may train on without it.
    """
    how = f"up to {wait_s:.0f} s for another one: volary attach --drive {directory.argument}" if wait_s else ""
    order = json.dumps({"run": str(directory.path), "driver": os.getpid(), "waits": how})
    known: set[int] = set()
    with subprocess.Popen(
        [sys.executable, "-I", "-S", __file__, order],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        pass_fds=[lock.descriptor],
        start_new_session=True,  # Ctrl-C in the terminal is not meant for it
    ) as process:
        assert process.stdin is not None
        words = process.stdin

        def say(line: bytes) -> None:
            with contextlib.suppress(BrokenPipeError):  # somebody has killed it
                words.write(line)
                words.flush()

        def see_out(workers: Iterable[int]) -> None:
            if new := set(workers) - known:
                known.update(new)
                say(json.dumps(list(new)).encode() + b"\n")

        try:
            yield see_out
        finally:
            say(_OVER)
            with contextlib.suppress(BrokenPipeError):  # closing writes what is left
                words.close()
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(END_WITHIN_S)
            process.kill()


def main() -> None:
    """Hear of workers, and wait for the driver's word or its end."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # whoever ends the driver by it still wants to hear how to resume
    order = json.loads(sys.argv[1])
    born: dict[int, str] = {}
    for line in sys.stdin.buffer:
        if line == _OVER:
            return
        born |= {pid: found for pid in json.loads(line) if (found := _born(pid))}
    gone = f"the driver (process {order['driver']}) is gone, without a word"
    waiting = f"{gone}; its workers train on, and wait {order['waits']}" if order["waits"] else ""
    killed = _see_out(born, Path(order["run"], "lock"), waiting)
    if killed is None:
        return
    words = f"{killed} of its workers hung and were killed" if killed else "its workers have ended"
    _say(f"{gone}; {words}")
    # not isolated: as the driver was
    os.execv(sys.executable, [sys.executable, "-m", "volary.run.resuming", order["run"]])


def _say(text: str) -> None:
    with contextlib.suppress(OSError):  # the terminal has gone, too
        print(text, file=sys.stderr, flush=True)


def _see_out(born: dict[int, str], lock: Path, waiting: str) -> int | None:
    """Return when all have ended: how many of them had to be killed; None once another driver has the run.

    waiting: to say while they wait for one.
    """
    held, begun = _file(lock), time.monotonic()
    sign, seen_at, killed = _changed(lock), begun, 0
    while left := [pid for pid, since in born.items() if _born(pid) == since]:
        if _file(lock) != held:
            return None
        if (newest := _changed(lock)) != sign:  # workers that are ending in order, or wait, touch it
            sign, seen_at = newest, time.monotonic()
            if waiting and seen_at - begun > WAITING_S:
                _say(waiting)
                waiting = ""
        for pid in born.keys() - left:
            _kill(pid)  # what it had started itself
            del born[pid]
        if time.monotonic() - seen_at > STILL_S:
            killed = len(left)
            break
        time.sleep(LOOK_S)
    for pid in born:
        _kill(pid)
    return killed


def _kill(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)


def _file(path: Path) -> int:
    """Which file it is: whoever takes the run over has a new one."""
    with contextlib.suppress(OSError):
        return path.stat().st_ino
    return 0


def _changed(path: Path) -> int:
    with contextlib.suppress(OSError):
        return path.stat().st_mtime_ns
    return 0


def _born(pid: int) -> str:
    """The time when a process started, which tells it from a later one of the same number; empty if it has ended."""
    try:
        os.kill(pid, 0)
        fields = Path("/proc", str(pid), "stat").read_text().rpartition(")")[2].split()
    except ProcessLookupError:
        return ""
    except OSError:  # no such file where this is not Linux; there it lives
        return "" if Path("/proc/self").exists() else "runs"
    state, since = fields[0], fields[19]
    return "" if state in "ZX" else since


if __name__ == "__main__":
    main()
