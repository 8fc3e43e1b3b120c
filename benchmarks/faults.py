"""How long does it take from a fault until it is named, or until nothing of the run is left?

    python benchmarks/faults.py [--quick] [--only NAME] [--json FILE]

Each trial is a run of its own: `volary train` with two workers, at its defaults, to which something is done once it is
training. Measured is the time from there to the end of the command, which names what was hit: `worker-kill` and
`server-kill` (SIGKILL), `silence` (SIGSTOP of a worker), `endless-loop` (in a worker's forward, with stuck_after_s=15).
Where the driver is hit, to the end of the last process that could write the run: `driver-kill` (SIGKILL), after which
the terminal shows the command that resumes the run, and `driver-stop` (SIGSTOP), after which workers are gone. What is
compared with is the bound that docs/faults.md promises: ratio is the largest of all trials over that bound. A full run
makes 10 trials of each row, --quick two, of the long ones one.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import psutil  # type: ignore[import-untyped]

from _report import Options, Row, arguments, report
from volary.run.database.reader import RunReader
from volary.run.directory import RunDirectory

TRIALS = 10
WITHIN_S = 120.0  # of any wait for the run
LOOK_S = 0.005
BEGIN_AT = 30  # the step after which something goes wrong
SESSION = """\
network: net.py:Net
data: {{source: {{name: synthetic, shape: [16], classes: 4, samples: 256, kind: blobs}}, batch_size: 32}}
train: {{steps: 100000}}
evaluate: {{every: never}}
strategy: {{workers: 2, {strategy}}}
run: {{name: it}}
"""


class Trial:
    """One run in the current folder, which ends with it."""

    def __init__(self, strategy: str) -> None:
        shutil.copy(Path(__file__).with_name("_faults_net.py"), "net.py")
        Path("session.yaml").write_text(SESSION.format(strategy=strategy), encoding="utf-8")
        self._said = Path("said").open("w+", encoding="utf-8")  # noqa: SIM115  # closed by `close`
        command = [sys.executable, "-m", "volary", "train", "session.yaml", "--quiet"]
        self.driver = subprocess.Popen(command, stdout=self._said, stderr=self._said)
        self._directory = RunDirectory(Path("runs/it"))
        self.wait_until(self._is_training)
        self.others = psutil.Process(self.driver.pid).children(recursive=True)

    def _is_training(self) -> bool:
        if not self._directory.database.exists():
            return False
        with RunReader(self._directory) as reader:
            return reader.last_step() > BEGIN_AT

    def worker(self, rank: int) -> int:
        """The process of a worker."""
        with RunReader(self._directory) as reader:
            return int(json.loads(reader.info()["pids"])[1 + rank])

    def server(self, number: int) -> int:
        """The process of a server."""
        with RunReader(self._directory) as reader:
            return int(json.loads(reader.info()["server_pids"])[number])

    def wait_until(self, condition: Callable[[], bool]) -> None:
        """Wait for a condition."""
        until = time.monotonic() + WITHIN_S
        while not condition():
            if time.monotonic() > until:
                raise SystemExit(f"waited {WITHIN_S:.0f} s in vain:\n{self.said()}")
            time.sleep(LOOK_S)

    def has_ended(self) -> bool:
        """Whether the command has."""
        return self.driver.poll() is not None

    def is_gone(self, pids: list[int]) -> bool:
        """Whether none of these processes runs any more."""
        return not any(_lives(one) for one in self.others if one.pid in pids)

    def said(self) -> str:
        """What the command, and who outlived it, printed."""
        self._said.flush()
        return Path("said").read_text(encoding="utf-8")

    def must_say(self, words: str) -> None:
        """A verdict that names somebody else is none."""
        if words not in self.said():
            raise SystemExit(f"did not say {words!r} but:\n{self.said()}")

    def close(self) -> None:
        """End what is left."""
        self.driver.kill()
        self.driver.wait()
        for one in self.others:
            if _lives(one):
                one.kill()
        self._said.close()


def _lives(process: psutil.Process) -> bool:
    try:
        return bool(process.is_running() and process.status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


def _worker_killed(trial: Trial) -> float:
    os.kill(trial.worker(1), signal.SIGKILL)
    return _named(trial, "rank 1 (host ")


def _server_killed(trial: Trial) -> float:
    os.kill(trial.server(1), signal.SIGKILL)
    return _named(trial, "server 1 (host ")


def _worker_stopped(trial: Trial) -> float:
    os.kill(trial.worker(1), signal.SIGSTOP)
    return _named(trial, "rank 1 (host ")


def _worker_hangs(trial: Trial) -> float:
    Path("hang").touch()
    return _named(trial, "rank 1 (host ")


def _named(trial: Trial, words: str) -> float:
    began = time.monotonic()
    trial.wait_until(trial.has_ended)
    took_s = time.monotonic() - began
    trial.must_say(words)
    return took_s


def _driver_killed(trial: Trial) -> float:
    began = time.monotonic()
    trial.driver.kill()
    trial.wait_until(lambda: trial.has_ended() and not any(_lives(one) for one in trial.others))
    took_s = time.monotonic() - began
    trial.must_say("resume from step ")
    return took_s


def _driver_stopped(trial: Trial) -> float:
    workers = [trial.worker(0), trial.worker(1)]
    began = time.monotonic()
    trial.driver.send_signal(signal.SIGSTOP)
    trial.wait_until(lambda: trial.is_gone(workers))
    took_s = time.monotonic() - began
    trial.driver.send_signal(signal.SIGCONT)
    trial.wait_until(trial.has_ended)
    trial.must_say("the driver has not answered for ")
    return took_s


@dataclass(frozen=True)
class Case:
    """One row. strike: does it, and returns the seconds that it took. quick: trials of a quick run."""

    strike: Callable[[Trial], float]
    bound_s: float
    quick: int
    strategy: str = ""


CASES = {
    "worker-kill": Case(_worker_killed, 1, quick=2),
    "server-kill": Case(_server_killed, 2, quick=2, strategy="exchange: {name: server, servers: 2}"),
    "silence": Case(_worker_stopped, 15, quick=1),
    "endless-loop": Case(_worker_hangs, 17, quick=1, strategy="stuck_after_s: 15"),
    "driver-kill": Case(_driver_killed, 15, quick=2),
    "driver-stop": Case(_driver_stopped, 15, quick=1),
}


def main() -> None:
    """Run the rows that are asked for."""
    options = arguments(__doc__, list(CASES))
    report([_row(name, case, options) for name, case in CASES.items() if options.wants(name)], options.json)


def _row(name: str, case: Case, options: Options) -> Row:
    found = [_tried(case) for _ in range(case.quick if options.quick else TRIALS)]
    median, largest = statistics.median(found), max(found)
    print(f"{name}: median {median:.2f} s, largest {largest:.2f} s of {len(found)}", flush=True)
    return Row(
        name=name,
        value=median,
        unit="s",
        peer="the bound",
        peer_value=case.bound_s,
        ratio=largest / case.bound_s,
        wanted="at most 1.00",
        better="lower",
    )


def _tried(case: Case) -> float:
    home = Path.cwd()
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        try:
            trial = Trial(case.strategy)
            try:
                return case.strike(trial)
            finally:
                trial.close()
        finally:
            os.chdir(home)


if __name__ == "__main__":
    main()
