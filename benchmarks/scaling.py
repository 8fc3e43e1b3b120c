"""What breaks first when a run has a thousand workers? Their beats, meeting and roster, without the workers.

    python benchmarks/scaling.py [--quick] [--only NAME] [--json FILE]

A process serves what a run's driver serves (_scaling_driver.py); this one connects for as many workers as the row
says, by real sockets and with the run's key, and says what they would say. A figure is CPU seconds of the driver.

`beats-N`: N workers beat four times a second, with one step in each beat; of a second. `come-N`: N workers come, at
most 64 at a time; all of them. `share-N`: every worker posts a value and reads everybody's, as ranks do some ten
times before the first step; once. `roster-N`: a step of N workers in lock step over servers, who ask ahead. N is 64,
256 and 1024 (--quick: 16 and 64). The largest is the row, against a bound; above the table stand the others, the
driver's memory, and the power of the workers with which the figure grows.
"""

from __future__ import annotations

import json
import math
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import psutil

from _in_lab import HERE
from _report import Options, Row, arguments, report
from _scaling_steps import ROWS as OF_A_STEP
from volary.comm.control.connection import Connection
from volary.lab import LabError
from volary.run.database.journal import STEP_FIELDS
from volary.run.directory import RunDirectory
from volary.run.machine.open_files import allow_connections

AT_ONCE = 64
BEATS, STEPS = 8, 5
BEATS_PER_S = 4
PATIENT_S = 120.0


@dataclass(frozen=True)
class Driver:
    """One that is served by a process of its own."""

    process: psutil.Process
    directory: RunDirectory
    host: str
    port: int
    attempt_id: str

    def connect(self, service: str, hello: dict[str, Any]) -> Connection:
        """A connection to one of its services."""
        key = self.directory.key()
        return Connection.open(self.host, self.port, key, service, hello, self.attempt_id, timeout_s=PATIENT_S)

    def connect_all(self, service: str, hellos: Sequence[dict[str, Any]]) -> list[Connection]:
        """The connections of many workers, some at a time."""
        with ThreadPoolExecutor(AT_ONCE) as threads:
            return list(threads.map(partial(self.connect, service), hellos))

    def cpu_s(self) -> float:
        """Seconds of a processor that it has used."""
        times = self.process.cpu_times()
        return float(times.user + times.system)


@contextmanager
def _driver(workers: int) -> Iterator[Driver]:
    command = [sys.executable, str(HERE / "_scaling_driver.py"), str(workers)]
    with (
        tempfile.TemporaryDirectory() as folder,
        subprocess.Popen(command, cwd=folder, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process,
    ):
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            said = json.loads(process.stdout.readline())
            directory = RunDirectory(said["directory"])
            yield Driver(psutil.Process(process.pid), directory, said["host"], said["port"], said["attempt_id"])
        finally:
            process.stdin.close()


def _come(driver: Driver, workers: int) -> tuple[list[Connection], float]:
    before = driver.cpu_s()
    pulses = driver.connect_all("pulse", [{"rank": rank, "pid": rank + 1, "host": "h"} for rank in range(workers)])
    for pulse in pulses:
        _until(pulse, "welcome")
    return pulses, driver.cpu_s() - before


def _come_once(driver: Driver, workers: int) -> float:
    return _come(driver, workers)[1]


def _beats(driver: Driver, workers: int) -> float:
    pulses, _ = _come(driver, workers)
    before = driver.cpu_s()
    for number in range(1, BEATS + 1):
        began = time.monotonic()
        for rank, pulse in enumerate(pulses):
            row = [float(number if field == "step" else rank if field == "rank" else 1) for field in STEP_FIELDS]
            beat = {
                "number": number,
                "step": number,
                "phase": "forward",
                "progress": number,
                "rows": [row],
                "events": [],
            }
            pulse.send(beat)
        for pulse in pulses:
            _until(pulse, "acknowledged")
        time.sleep(max(0.0, 1 / BEATS_PER_S - (time.monotonic() - began)))
    return (driver.cpu_s() - before) / BEATS * BEATS_PER_S


def _share(driver: Driver, workers: int) -> float:
    from volary.comm.control.store import KeyedStore
    from volary.train.member.bulletin import BoardBulletin

    connections = driver.connect_all("board", [{} for _ in range(workers)])
    stores = [KeyedStore(lambda one=one: one, PATIENT_S) for one in connections]  # type: ignore[misc]
    before = driver.cpu_s()
    with ThreadPoolExecutor(workers) as threads:
        shared = threads.map(
            lambda rank: BoardBulletin(stores[rank], rank, workers, 1).share("facts", {"sum": rank}), range(workers)
        )
        assert all(len(one) == workers for one in shared)
    return driver.cpu_s() - before


def _roster(driver: Driver, workers: int) -> float:
    server = driver.connect("roster", {"is": "server", "number": 0, "host": "h", "port": 1, "pid": 1})
    over = threading.Event()
    beating = threading.Thread(target=_beat_until, args=(server, over), daemon=True)
    beating.start()
    hello = {"is": "worker", "facts": {}, "samples": workers, "validation": 0, "metric": "accuracy"}
    hellos = [hello | {"rank": rank, "higher_is_better": True} for rank in range(workers)]
    members = driver.connect_all("roster", hellos)
    for member in members:
        member.send({"say": "ask"})
    tasks = [_until(member, "clock") for member in members]
    before = driver.cpu_s()
    for _ in range(STEPS):
        for member, task in zip(members, tasks, strict=True):
            member.send({"say": "computed", "clock": task["clock"], "loss": 1.0, "finite": True})
            member.send({"say": "ask"})  # ahead
            member.send({"say": "done", "clock": task["clock"]})
        tasks = [_until(member, "clock") for member in members]
    took = driver.cpu_s() - before
    over.set()
    beating.join()
    server.close()
    return took / STEPS


def _beat_until(server: Connection, over: threading.Event) -> None:
    while not over.wait(1 / BEATS_PER_S):
        server.send({"say": "beat", "applied": 0})


def _until(connection: Connection, key: str) -> dict[str, Any]:
    """The next message that has `key`."""
    while key not in (message := connection.receive(PATIENT_S)):
        pass
    return dict(message)


@dataclass(frozen=True)
class Question:
    """Work of workers, and the driver's bound for it, in CPU seconds, with the most of them."""

    work: Callable[[Driver, int], float]
    unit: str
    bound_s: float


QUESTIONS = {
    "beats": Question(_beats, "CPU s a second", 1.0),
    "come": Question(_come_once, "CPU s", 10.0),
    "share": Question(_share, "CPU s", 5.0),
    "roster": Question(_roster, "CPU s a step", 0.5),
}


def main() -> None:
    """Run the rows that are asked for."""
    rows = {name: partial(_row, name, one) for name, one in QUESTIONS.items()} | OF_A_STEP
    options = arguments(__doc__, list(rows))
    allow_connections(4 * 1024)
    found: list[Row] = []
    for name, row in rows.items():
        if options.wants(name):
            try:
                found.append(row(options))
            except LabError as reason:
                print(f"{name}: skipped: {reason}")
    report(found, options.json)


def _row(name: str, question: Question, options: Options) -> Row:
    counts = (16, 64) if options.quick else (64, 256, 1024)
    found = []
    for workers in counts:
        with _driver(workers) as driver:
            found.append(question.work(driver, workers))
            held_mib = driver.process.memory_info().rss / 2**20
        print(f"{name}-{workers}: {found[-1]:.3f} {question.unit}; {held_mib:.0f} MiB")
    if min(found) > 0:
        power = math.log(found[-1] / found[-2]) / math.log(counts[-1] / counts[-2])
        print(f"{name}: grows with the power {power:.2f} of the workers")
    name, bound = f"{name}-{counts[-1]}", question.bound_s
    return Row(name, found[-1], question.unit, "the bound", bound, found[-1] / bound, "at most 1.0", "lower")


if __name__ == "__main__":
    main()
