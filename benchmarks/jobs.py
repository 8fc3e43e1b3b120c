"""What does the queue of this machine cost, and what does a run lose that gives way?

    python benchmarks/jobs.py [--quick] [--only NAME] [--json FILE]

`idle`: processor time of a runner while 100 runs wait, against 0.2 % of a core, over 60 s (--quick: 20).
`queue-1000`: processor seconds of `volary queue` with 1,000 waiting runs, against 0.3 s. `start`: seconds from the end
of a run to the first step of the one that waits for its core, beyond what `volary train` takes from its command to its
first step; the median of 3 (--quick: 1), against 1 s. `preempt`: steps that a run of 1,600 steps (--quick: 400)
computes more than once, as it gives way 4 times to a run of higher priority; against the 91 that are published for Ray
Train with checkpoints that are written when an instance is about to be taken away (ViT-B/16, 8 workers, 4 preemptions
of 1,600 steps, github.com/ray-project/ray/pull/65047). `sweep-8`: seconds of `volary sweep --at-once auto` with 8 runs,
against eight `volary train` commands, of which `xargs -P` keeps as many alive as there are cores; the median of 3 pairs
(--quick: 1). All in a queue of its own, and in a temporary folder.
"""

from __future__ import annotations

import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import psutil

from _report import Options, Row, arguments, report
from volary.errors import RunError
from volary.jobs.entry import Demand, QueueEntry
from volary.jobs.queue import LocalQueue
from volary.jobs.service import ensure_runner
from volary.jobs.table import QueueTable, queue_folder
from volary.run.database.reader import RunReader
from volary.run.directory import RunDirectory
from volary.run.lock import RunLock
from volary.run.machine.cores import cores_here

Value = TypeVar("Value")
VOLARY = [sys.executable, "-m", "volary"]
ALL_CORES = f"--cores={len(cores_here())}"
SESSION = """\
network: softmax
data: {source: digits, batch_size: 64}
train: {device: cpu, steps: 1}
evaluate: {every: never}
"""
WAIT_S = 600.0
LOOK_S = 0.02


def main() -> None:
    """Run the rows that are asked for."""
    rows: dict[str, Callable[[Options], Row]] = {
        "idle": _idle,
        "queue-1000": _queue_1000,
        "start": _start,
        "preempt": _preempt,
        "sweep-8": _sweep_8,
    }
    options = arguments(__doc__, list(rows))
    found = []
    for name, row in rows.items():
        if options.wants(name):
            with tempfile.TemporaryDirectory() as folder:
                os.chdir(folder)
                os.environ["XDG_STATE_HOME"] = str(Path(folder, "state"))
                Path("session.yaml").write_text(SESSION, encoding="utf-8")
                try:
                    found.append(row(options))
                finally:
                    _until_idle()
                    os.chdir("/")
    report(found, options.json)


def _idle(options: Options) -> Row:
    seconds = 20.0 if options.quick else 60.0
    before = _made("before")
    with before.lock(), QueueTable(queue_folder()) as table:  # it runs, as far as anybody sees
        for number in range(100):
            _add(table, number, after=(str(before.path),))
        ensure_runner(table)
        runner = _runner(table)
        time.sleep(2)
        spent = _cpu_s(runner)
        time.sleep(seconds)
        share = 100 * (_cpu_s(runner) - spent) / seconds
        runner.kill()
        _until(lambda: not table.has_runner())
    return Row("idle", share, "% of a core", "the bound", 0.2, share / 0.2, "at most 1.0", "lower")


def _queue_1000(options: Options) -> Row:
    with QueueTable(queue_folder()) as table, RunLock(table.runner_lock):  # nobody starts them
        for number in range(1000):
            _add(table, number, demand=Demand(1 + number % 2), time_s=60.0 + number)
        spent = []
        for _ in range(3 if options.quick else 7):
            before = resource.getrusage(resource.RUSAGE_CHILDREN)
            subprocess.run([*VOLARY, "queue"], check=True, stdout=subprocess.DEVNULL)
            after = resource.getrusage(resource.RUSAGE_CHILDREN)
            spent.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    took = statistics.median(spent)
    return Row("queue-1000", took, "CPU s", "the bound", 0.3, took / 0.3, "at most 1.0", "lower")


def _start(options: Options) -> Row:
    found = []
    for number in range(1 if options.quick else 3):
        began = time.time()
        subprocess.run([*VOLARY, "train", "session.yaml", "--quiet", f"run.name=alone-{number}"], check=True)
        alone = _ended(f"alone-{number}", first_step=True) - began
        for name in ("first", "next"):
            _submit(f"run.name={name}-{number}", ALL_CORES)
        _until(partial(_is_finished, f"next-{number}"))
        queued = _ended(f"next-{number}", first_step=True) - _ended(f"first-{number}")
        print(f"  start: {queued:.2f} s from the end of the run before, {alone:.2f} s from a command")
        found.append(queued - alone)
    beyond = statistics.median(found)
    return Row("start", beyond, "s", "the bound", 1.0, beyond, "at most 1.0", "lower")


def _preempt(options: Options) -> Row:
    steps = 400 if options.quick else 1600
    for number in range(1, 5):
        _submit(f"run.name=dear-{number}", ALL_CORES, "--priority", "1", "--hold")
    _submit("run.name=long", ALL_CORES, f"train.steps={steps}", "checkpoint.every=100 steps", "network=lenet")
    for number in range(1, 5):
        _until(partial(_trains, "long", number * steps // 6, resumed=number - 1))
        LocalQueue().release(str(Path(f"runs/dear-{number}").absolute()))
        _until(partial(_is_finished, f"dear-{number}"))
    _until(partial(_is_finished, "long"))
    with RunReader(RunDirectory("runs/long")) as reader:
        stopped = [int(event.data["step"]) for event in reader.events(kind="stopped")]
        resumed = [int(event.data["from_step"]) for event in reader.events(kind="resumed")]
    print(f"  preempt: stopped after the steps {stopped}, resumed from {resumed}")
    wasted = sum(stopped) - sum(resumed)
    assert len(stopped) == len(resumed) == 4, "the long run ended before it had given way 4 times"
    return Row("preempt", wasted, "steps", "Ray Train, as published", 91, wasted / 91, "at most 0", "lower")


def _sweep_8(options: Options) -> Row:
    rates = [f"optimizer.lr=0.0{number}" for number in range(1, 9)]
    values = ",".join(rate.removeprefix("optimizer.lr=") for rate in rates)
    ours = [*VOLARY, "sweep", "session.yaml", f"optimizer.lr={values}", "--at-once", "auto"]
    theirs = ["xargs", "-P", str(len(cores_here())), "-I", "RATE", *VOLARY, "train", "session.yaml", "RATE", "--quiet"]
    pairs = []
    _seconds([*VOLARY, "train", "session.yaml", "--quiet"])  # the first one reads from the disk
    for _ in range(1 if options.quick else 3):
        queued, commands = _seconds(ours), _seconds(theirs, "\n".join(rates))
        print(f"  sweep-8: {queued:.1f} s through the queue, {commands:.1f} s by xargs")
        pairs.append((queued, commands))
    took, other = (statistics.median(seconds) for seconds in zip(*pairs, strict=True))
    ratio = statistics.median(one / two for one, two in pairs)
    return Row("sweep-8", took, "s", "xargs -P", other, ratio, "at most 1.0", "lower")


def _seconds(command: list[str], said: str = "") -> float:
    began = time.perf_counter()
    subprocess.run(command, input=said, text=True, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return time.perf_counter() - began


def _until_idle() -> None:
    """Nothing of the queue outlives its folder: what is still in it is taken out, and its runner ends by itself."""
    with QueueTable(queue_folder()) as table:
        queue = LocalQueue()
        for entry in table.entries() if table.has_runner() else ():
            with suppress(RunError):  # it has left meanwhile
                queue.cancel(entry.run)
        _until(lambda: not table.has_runner())


def _made(name: str) -> RunDirectory:
    return RunDirectory.create(Path("runs").absolute(), name, "it", SESSION)


def _add(table: QueueTable, number: int, demand: Demand | None = None, **more: Any) -> None:
    run = Path("runs").absolute() / f"waiting-{number}"
    for part in ("checkpoints", "logs", "verdicts", "results"):  # by which it is known for a run
        (run / part).mkdir(parents=True)
    table.add(QueueEntry(run=str(run), demand=demand or Demand(), **more), {})


def _submit(*arguments: str) -> None:
    subprocess.run([*VOLARY, "submit", "session.yaml", *arguments], check=True, capture_output=True)


def _is_finished(name: str) -> bool:
    with RunReader(RunDirectory(f"runs/{name}")) as reader:
        return reader.state() == "finished"


def _trains(name: str, steps: int, *, resumed: int) -> bool:
    """Whether a run was resumed so often, has trained since then, and has done so many steps; or whether it is over.

    One that is to give way before the first step since then has nothing to save, and records no step.
    """
    with RunReader(RunDirectory(f"runs/{name}")) as reader:
        began_at = [int(event.data["from_step"]) for event in reader.events(kind="resumed")]
        trained = len(began_at) == resumed and reader.last_step() >= max([steps, *(step + 1 for step in began_at)])
        return trained or reader.state() == "finished"


def _ended(name: str, *, first_step: bool = False) -> float:
    """When a run ended, or its first step, in seconds since 1970."""
    with RunReader(RunDirectory(f"runs/{name}")) as reader:
        return min(row.ended_at for row in reader.steps()) if first_step else float(reader.info()["ended_at"])


def _runner(table: QueueTable) -> psutil.Process:
    _until(table.has_runner)
    return psutil.Process(int(_until(table.runner_lock.read_text)))


def _cpu_s(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)


def _until(condition: Callable[[], Value]) -> Value:
    end = time.monotonic() + WAIT_S
    while not (value := condition()):
        if time.monotonic() > end:
            raise TimeoutError("the queue does not go on")
        time.sleep(LOOK_S)
    return value


if __name__ == "__main__":
    main()
