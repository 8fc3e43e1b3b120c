"""How long does it take from a fault until it is named, or until nothing of the run is left?

    python benchmarks/faults.py [--quick] [--only NAME] [--json FILE]
    python benchmarks/faults.py --schedules N [--seed FIRST] [--json FILE]

Each trial is a run of its own: `volary train` with two workers, at its defaults, to which something is done once it is
training. Measured is the time from there

- to the end of the command, which names what was hit: `worker-kill` and `server-kill` (SIGKILL), `silence` (SIGSTOP of
  a worker), `endless-loop` (in a worker's forward, with stuck_after_s=15), `host-cut` (a host of a lab loses its link;
  skipped where there can be no lab);
- where the driver is hit, to the end of the last process that could write the run: `driver-kill` (SIGKILL), after which
  the terminal shows the command that resumes the run, and `driver-stop` (SIGSTOP), after which workers are gone;
- where the run goes on, to what it says of that: `warning` (the endless loop at defaults), `reset` (of a worker's
  connections to the driver, until they are made again), `slow-worker` (in steps; 0.1 s longer than the other's);
- `stranger` (connects to the driver and says nothing), until its connection is closed.

What is compared with is the bound that docs/faults.md promises: ratio is the largest of all trials over that bound. A
full run makes 10 trials of each row, --quick two, of the long ones one.

With `--schedules N` it asks instead: do signals at random break a promise? N runs of 18 strategies get one or two
signals (KILL, STOP and mostly CONT later, TERM, INT) at random moments, to the driver, workers, servers, the fork
server or another helper, are resumed until they are done, and may be hit again meanwhile. Looked at is whether every
start ends, with a code and a message that fit; that nothing is left, no process, shared memory, temporary file or
draft; that as many samples were learnt from as without a signal; and that weights are the same bit for bit where that
is promised. The folder of a schedule that broke a promise stays below `fault-schedules`, and the script ends with 1.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from pathlib import Path

import psutil

from _fault_schedules import Schedules
from _report import Options, Row, arguments, report
from volary.driver.ending import NoWatcher
from volary.errors import WorkerLost
from volary.lab import Lab, LabError
from volary.lab.training import LabTraining, train
from volary.run.database.reader import Event, RunReader
from volary.run.directory import RunDirectory

TRIALS = 10
WITHIN_S = 120.0  # of any wait for the run
LOOK_S = 0.005
BEGIN_AT = 30  # the step after which something goes wrong
SLOW_S = 0.1  # by which a slow step takes longer, as in _faults_net
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

    def __init__(self) -> None:
        self._said = Path("said").open("w+", encoding="utf-8")  # noqa: SIM115  # closed by `close`
        command = [sys.executable, "-m", "volary", "train", "session.yaml", "--quiet"]
        self.driver = subprocess.Popen(command, stdout=self._said, stderr=self._said)
        self.directory = RunDirectory(Path("runs/it"))
        self.wait_until(self._is_training)
        self.others = psutil.Process(self.driver.pid).children(recursive=True)

    def _is_training(self) -> bool:
        if not self.directory.database.exists():
            return False
        with RunReader(self.directory) as reader:
            return reader.last_step() > BEGIN_AT

    def until_event(self, kind: str) -> Event:
        """Wait for the first event of a kind."""
        events: list[Event] = []

        def is_there() -> bool:
            with RunReader(self.directory) as reader:
                events.extend(reader.events(kind=kind))
            return bool(events)

        self.wait_until(is_there)
        return events[0]

    def worker(self, rank: int) -> int:
        """The process of a worker."""
        with RunReader(self.directory) as reader:
            return int(json.loads(reader.info()["pids"])[1 + rank])

    def server(self, number: int) -> int:
        """The process of a server."""
        with RunReader(self.directory) as reader:
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
        """The output of the command, and of processes that outlived it."""
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


def in_a_run(strike: Callable[[Trial], float]) -> Callable[[], float]:
    """A fault done to a run, as a function that begins it and ends what is left."""

    @wraps(strike)
    def tried() -> float:
        trial = Trial()
        try:
            return strike(trial)
        finally:
            trial.close()

    return tried


@in_a_run
def _worker_killed(trial: Trial) -> float:
    os.kill(trial.worker(1), signal.SIGKILL)
    return _named(trial, "rank 1 (host ")


@in_a_run
def _server_killed(trial: Trial) -> float:
    os.kill(trial.server(1), signal.SIGKILL)
    return _named(trial, "server 1 (host ")


@in_a_run
def _worker_stopped(trial: Trial) -> float:
    os.kill(trial.worker(1), signal.SIGSTOP)
    return _named(trial, "rank 1 (host ")


@in_a_run
def _worker_hangs(trial: Trial) -> float:
    Path("hang").touch()
    return _named(trial, "rank 1 (host ")


@in_a_run
def _worker_warned_of(trial: Trial) -> float:
    began = time.monotonic()
    Path("hang").touch()
    trial.until_event("suspect")
    return time.monotonic() - began


@in_a_run
def _connection_reset(trial: Trial) -> float:
    began = time.monotonic()
    Path("reset").touch()
    trial.until_event("reconnected")
    return time.monotonic() - began


@in_a_run
def _worker_slow(trial: Trial) -> float:
    Path("slow").touch()
    named = trial.until_event("slow")
    with RunReader(trial.directory) as reader:  # what the database had when it began was some steps old
        quick = [row.step for row in reader.steps(rank=1) if row.forward_s < SLOW_S]
    return float((named.step or 0) - quick[-1])


@in_a_run
def _stranger(trial: Trial) -> float:
    sockets = psutil.Process(trial.driver.pid).net_connections("tcp")
    (address,) = [one.laddr for one in sockets if one.status == psutil.CONN_LISTEN]
    with socket.create_connection(address, WITHIN_S) as plug:
        began = time.monotonic()
        while plug.recv(4096):
            pass
        return time.monotonic() - began


class _Cutting(NoWatcher):
    """Cuts a host off once the run trains."""

    def __init__(self, lab: Lab) -> None:
        self._lab = lab
        self.cut_at = 0.0

    def started(self, directory: RunDirectory) -> None:
        self._directory = directory

    def look(self) -> None:
        with RunReader(self._directory) as reader:
            if not self.cut_at and reader.last_step() > BEGIN_AT:
                self._lab.cut(1)
                self.cut_at = time.monotonic()


def _host_cut() -> float:
    with Lab(hosts=2) as lab:
        watching = _Cutting(lab)
        try:
            train(lab, LabTraining(Path("session.yaml")), watching, timeout_s=WITHIN_S)
        except WorkerLost as lost:
            took_s = time.monotonic() - watching.cut_at
            if not str(lost).startswith("rank 1 (host h1"):
                raise SystemExit(f"named somebody else: {lost}") from None
            return took_s
    raise SystemExit("the run has ended, and nobody was named")


def _named(trial: Trial, words: str) -> float:
    began = time.monotonic()
    trial.wait_until(trial.has_ended)
    took_s = time.monotonic() - began
    trial.must_say(words)
    return took_s


@in_a_run
def _driver_killed(trial: Trial) -> float:
    began = time.monotonic()
    trial.driver.kill()
    trial.wait_until(lambda: trial.has_ended() and not any(_lives(one) for one in trial.others))
    took_s = time.monotonic() - began
    trial.must_say("resume from step ")
    return took_s


@in_a_run
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
    """One row. strike: does it, and returns the seconds or steps that it took. quick: trials of a quick run."""

    strike: Callable[[], float]
    bound: float
    quick: int
    strategy: str = ""
    unit: str = "s"


CASES = {
    "worker-kill": Case(_worker_killed, 1, quick=2),
    "server-kill": Case(_server_killed, 2, quick=2, strategy="exchange: {name: server, servers: 2}"),
    "silence": Case(_worker_stopped, 15, quick=1),
    "endless-loop": Case(_worker_hangs, 17, quick=1, strategy="stuck_after_s: 15"),
    "driver-kill": Case(_driver_killed, 15, quick=2),
    "driver-stop": Case(_driver_stopped, 15, quick=1),
    "host-cut": Case(_host_cut, 15, quick=1),
    "warning": Case(_worker_warned_of, 12, quick=1),  # 10 s, and the look of the driver
    "reset": Case(_connection_reset, 3, quick=2),
    "slow-worker": Case(_worker_slow, 40, quick=1, unit="steps"),  # 11, and 3 s of steps of 0.12 s
    "stranger": Case(_stranger, 6, quick=2),  # 5 s, and the look of the server
}


def main() -> None:
    """Run the rows that are asked for."""
    options = arguments(__doc__, list(CASES), _own_options)
    if options.more.schedules:
        rows = [_of_schedules(range(options.more.seed, options.more.seed + options.more.schedules))]
        report(rows, options.json)
        sys.exit(rows[0].value > 0)
    rows = []
    for name, case in CASES.items():
        if options.wants(name):
            try:
                rows.append(_row(name, case, options))
            except LabError as reason:
                print(f"{name}: skipped: {reason}")
    report(rows, options.json)


def _own_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--schedules", type=int, metavar="N", default=0, help="play N random schedules of faults")
    parser.add_argument("--seed", type=int, metavar="FIRST", default=0, help="the first of them")


def _of_schedules(seeds: range) -> Row:
    signal.signal(signal.SIGINT, signal.default_int_handler)  # in the background it is ignored, by those below, too
    folder = Path("fault-schedules")
    schedules, broken = Schedules(folder), []
    for seed in seeds:
        played = schedules.play(seed)
        print(played, flush=True)
        broken += [seed] if played.broken else []
    if not broken:
        folder.rmdir()
    for seed in broken:
        print(f"again: python benchmarks/faults.py --schedules 1 --seed {seed}")
    return Row(
        name="schedules",
        value=len(broken),
        unit=f"broken of {len(seeds)}",
        peer="the promise",
        peer_value=0,
        ratio=len(broken) / len(seeds),
        wanted="at most 0.00",
        better="lower",
    )


def _row(name: str, case: Case, options: Options) -> Row:
    tried = [_tried(case) for _ in range(case.quick if options.quick else TRIALS)]
    median, largest = statistics.median(tried), max(tried)
    print(f"{name}: median {median:.2f} {case.unit}, largest {largest:.2f} {case.unit} of {len(tried)}", flush=True)
    return Row(
        name=name,
        value=median,
        unit=case.unit,
        peer="the bound",
        peer_value=case.bound,
        ratio=largest / case.bound,
        wanted="at most 1.00",
        better="lower",
    )


def _tried(case: Case) -> float:
    home = Path.cwd()
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        try:
            shutil.copy(Path(__file__).with_name("_faults_net.py"), "net.py")
            Path("session.yaml").write_text(SESSION.format(strategy=case.strategy), encoding="utf-8")
            return case.strike()
        finally:
            os.chdir(home)


if __name__ == "__main__":
    main()
