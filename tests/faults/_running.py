"""Runs as users start them: the command in a process of its own, looked at through the run directory."""

from __future__ import annotations

import contextlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil  # type: ignore[import-untyped]

from volary.run.checkpoints import Checkpoints
from volary.run.database.reader import Event, RunReader
from volary.run.directory import RunDirectory

SOURCE = Path(__file__).parents[2] / "src"
VOLARY = (sys.executable, "-m", "volary")
BUSY = 6  # times as long as on a quiet machine things may take before a test gives up waiting for them
SESSION = """\
network: {{name: "net.py:Net", {network}}}
data: {{source: {{name: synthetic, shape: [16], classes: 4, samples: 256, kind: blobs}}, batch_size: 33}}
optimizer: {{name: sgd, lr: 0.05, momentum: 0.9}}
train: {{steps: {steps}}}
evaluate: {{every: never}}
checkpoint: {{every: 20 steps}}
strategy:
  workers: {workers}
  suspect_after_s: {suspect_after_s}
  give_up_after_s: {give_up_after_s}
  stuck_after_s: {stuck_after_s}
  consistency: {consistency}
{exchange}run: {{name: it}}
"""


def session(
    *,
    steps: int = 100_000,
    workers: int = 2,
    suspect_after_s: float = 5,
    give_up_after_s: float = 10,
    stuck_after_s: float = 600,
    route: str = "auto",
    consistency: str = "bsp",
    exchange: str | None = "",
    **network: Any,
) -> str:
    """Write a session of the network in _network.py beside its copy; returns the file's name.

    exchange: as in a session file; without it an all-reduce over `route`; None: whatever the session takes by itself.
    """
    shutil.copy(Path(__file__).with_name("_network.py"), "net.py")
    text = SESSION.format(
        network=json.dumps(network)[1:-1],
        steps=steps,
        workers=workers,
        suspect_after_s=suspect_after_s,
        give_up_after_s=give_up_after_s,
        stuck_after_s=stuck_after_s,
        consistency=consistency,
        exchange="" if exchange is None else f"  exchange: {exchange or f'{{name: allreduce, route: {route}}}'}\n",
    )
    Path("session.yaml").write_text(text)
    return "session.yaml"


@dataclass(frozen=True)
class Ended:
    """The files and output that a command left."""

    status: int
    out: str
    err: str


class Run:
    """One command that writes the run `runs/it`, or of another name. It and all that it started end with `end`."""

    def __init__(self, command: Sequence[str], name: str = "it", **how: Any) -> None:
        self.directory = RunDirectory(Path("runs") / name)
        self.attempt = life_of(self.directory) + 1
        self._out, self._err = (Path(f"{kind}-{name}-{self.attempt}") for kind in ("out", "err"))
        variables = os.environ | {"PYTHONPATH": os.pathsep.join([str(SOURCE), *_further_paths()])}
        with self._out.open("w") as out, self._err.open("w") as err:
            self.process = subprocess.Popen(command, env=variables, stdout=out, stderr=err, **how)
        self.started: set[psutil.Process] = {psutil.Process(self.process.pid)}

    def wait_until(self, condition: Callable[[], Any], at_most_s: float = 60) -> Any:
        """Wait for a condition of the run, while it goes on; its value. at_most_s: on a quiet machine."""
        until = time.monotonic() + BUSY * at_most_s
        while not (value := condition()):
            if self.process.poll() is not None and not (value := condition()):
                raise AssertionError(f"the run ended meanwhile with {self.process.returncode}:\n{self.text()}")
            assert time.monotonic() < until, f"waited {at_most_s} s in vain:\n{self.text()}"
            time.sleep(0.05)  # a look opens the run's database
        return value

    def wait_for_step(self, step: int) -> int:
        """Wait until this attempt of the run has recorded `step`; the step that it is at by then."""
        self.wait_until(lambda: life_of(self.directory) >= self.attempt and last_step(self.directory) >= step)
        self.started |= descendants(self.process.pid) | self._workers()
        return last_step(self.directory)

    def wait_for_checkpoint(self, step: int = 1) -> int:
        """Wait for a checkpoint of `step` or a later one, which is written beside the steps; the newest one's step."""
        kept = self.directory.checkpoints
        self.wait_until(lambda: kept.is_dir() and Checkpoints(kept).steps()[-1:] >= [step])
        return Checkpoints(kept).steps()[-1]

    def _workers(self) -> set[psutil.Process]:
        """The workers that are known; a launcher's need not be below the command."""
        with RunReader(self.directory) as reader, contextlib.suppress(psutil.NoSuchProcess):
            return {psutil.Process(pid) for pid in json.loads(reader.info()["pids"])}
        return set()

    def pid(self, rank: int) -> int:
        """The process of a worker that the driver started."""
        with RunReader(self.directory) as reader:
            return int(json.loads(reader.info()["pids"])[1 + rank])

    def kill(self, rank: int, number: int = signal.SIGKILL) -> float:
        """Send a signal to a worker; the time of it."""
        os.kill(self.pid(rank), number)
        return time.monotonic()

    def kill_as_others_meet(self, first: int, second: int, draw: random.Random) -> None:
        """Kill a worker, and another one at a moment that is drawn, while those that are left meet again."""
        self.kill(first)
        self.wait_until(lambda: events(self.directory, "lost"))
        time.sleep(draw.uniform(0, 0.5))  # no condition: any moment of the meeting is a case
        self.kill(second)

    def ended(self, at_most_s: float = 60, gone_within_s: float = 3) -> Ended:
        """Wait for the command; what it left. Afterwards nothing that it started runs. at_most_s: as above."""
        until = time.monotonic() + BUSY * at_most_s
        while self.process.poll() is None:
            self.started |= descendants(self.process.pid)  # looks at every process of the machine
            assert time.monotonic() < until, f"did not end within {at_most_s} s:\n{self.text()}"
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(0.1)
        left = self.left(gone_within_s)
        assert not left, f"left behind: {[words(one) for one in left]}"
        return Ended(self.process.returncode, self._out.read_text(), self._err.read_text())

    def left(self, within_s: float = 3) -> list[psutil.Process]:
        """Processes that the command started and that still run some seconds later."""
        until = time.monotonic() + BUSY * within_s
        while (left := [one for one in self.started if lives(one)]) and time.monotonic() < until:
            time.sleep(0.02)
        return left

    def text(self) -> str:
        """Everything said so far, for a failing test."""
        logs = [log.read_text() for log in sorted(self.directory.logs.glob("*.log"))]
        return "\n".join([self._out.read_text(), self._err.read_text(), *logs])

    def end(self) -> None:
        """Kill what is left, and close."""
        for one in self.started | descendants(self.process.pid):
            with contextlib.suppress(psutil.Error):
                one.kill()
        self.process.wait()


def _further_paths() -> list[str]:
    """Where Python looks, too, as the test has set it."""
    return [path for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path]


def life_of(directory: RunDirectory) -> int:
    """The run's newest attempt; -1 before the first."""
    if not directory.database.exists():
        return -1
    with RunReader(directory) as reader:
        return int(reader.info().get("life", -1))


def last_step(directory: RunDirectory) -> int:
    """The newest step recorded; 0 before the first."""
    if not directory.database.exists():
        return 0
    with RunReader(directory) as reader:
        return reader.last_step()


def learnt(run: Run, rank: int) -> bool:
    """Whether a worker has done a step."""
    with RunReader(run.directory) as reader:
        return next(reader.steps(rank=rank), None) is not None


def steps(run: Run) -> int:
    """Updates of a run with parameter servers, as its driver counts them."""
    with RunReader(run.directory) as reader:
        return int(reader.info().get("steps_now", 0))


def events(directory: RunDirectory, kind: str) -> list[Event]:
    """The run's events of a kind."""
    with RunReader(directory) as reader:
        return list(reader.events(kind=kind))


def state(directory: RunDirectory) -> str:
    """How the run stands, as everybody reads it."""
    with RunReader(directory) as reader:
        return reader.state()


@dataclass(frozen=True)
class Outcome:
    """All that training came to. losses: by (step, rank), as recorded. weights: the bytes of the final ones."""

    losses: dict[tuple[int, int], float]
    weights: bytes

    def continues(self, other: Outcome) -> bool:
        """Whether it equals `other` bit for bit; what was not yet recorded when a driver was killed may be absent."""
        same = all(other.losses[place] == loss for place, loss in self.losses.items())
        return same and self.weights == other.weights


def outcome(directory: RunDirectory) -> Outcome:
    """The result of a finished run."""
    with RunReader(directory) as reader:
        losses = {(row.step, row.rank): row.loss for row in reader.steps()}
    checkpoints = Checkpoints(directory.checkpoints)
    newest = checkpoints.verify(checkpoints.steps()[-1])
    weights = sorted(name for name in newest.files if name.startswith("model"))  # of all workers that keep some
    return Outcome(losses, b"".join((checkpoints.path(newest.step) / name).read_bytes() for name in weights))


def descendants(pid: int) -> set[psutil.Process]:
    """The processes below a process."""
    try:
        return set(psutil.Process(pid).children(recursive=True))
    except psutil.NoSuchProcess:
        return set()


def words(process: psutil.Process) -> str:
    """The name of a process, for a message."""
    with contextlib.suppress(psutil.Error):
        return f"{process.pid} {process.status()} {' '.join(process.cmdline())[:200]}"
    return f"{process.pid} (gone meanwhile)"


def lives(process: psutil.Process) -> bool:
    """Whether a process runs, or could again: a stopped one lives, a zombie does not."""
    try:
        return bool(process.is_running() and process.status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


@contextlib.contextmanager
def running(*command: str, **how: Any) -> Iterator[Run]:
    """A run for a while."""
    run = Run(command, **how)
    try:
        yield run
    finally:
        run.end()
