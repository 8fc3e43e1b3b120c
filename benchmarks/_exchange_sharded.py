"""The rows `sharded-...` of exchange.py: what do workers cost that keep shares?

`sharded-bytes`, `sharded-1g`: bytes that the busiest host sends, and seconds, of a step of AlexNet-like on four hosts
at 1 Gbit/s, beside DistributedDataParallel's. `sharded-shm-2`, `sharded-shm-4`: so many workers of this machine, Adam:
the most that each of them holds above a process that has imported torch, added up, beside that with `partition: data`;
`sharded-shm-step-...`: seconds of a step (the median of their rows), of runs in turns, whose memory is not looked at:
that takes time of its own. CPU seconds of each run stand above the table.
"""

from __future__ import annotations

import os
import resource
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable
from functools import cache, partial
from itertools import pairwise
from pathlib import Path

import _exchange_cases as cases
from _exchange_found import median
from _exchange_steps import DDP, Question, answer, found_in
from _in_lab import HERE
from _memory_watch import ONE_BY_ONE, torch_bytes, watched
from _report import Options, Row, paired
from volary.run.database.reader import RunReader
from volary.run.directory import RunDirectory

SESSION = """\
network: {networks}:alexnet_like
data: {{source: {{name: synthetic, shape: [3, 32, 32], classes: 100, samples: {samples}}}, batch_size: {samples}}}
optimizer: {{name: adam, lr: 0.0001}}
train: {{steps: {steps}, device: cpu, compare_replicas: never}}
evaluate: {{every: never}}
checkpoint: {{every: never}}
strategy: {{workers: {workers}, exchange: {{route: shared}}, partition: {partition}}}
run: {{name: it}}
"""
MEMORY_STEPS = 8
WARM_STEPS = 4  # in which memory is touched for the first time, and the order chosen
MOST_MEMORY = {2: "at most 0.70", 4: "at most 0.55"}


def _bytes(options: Options) -> Row:
    found = found_in(cases.FC_1G_SHARDED, quick=options.quick)
    ours, theirs = median(found.ours).sent_bytes, median(found.theirs["DDP"]).sent_bytes
    return Row(
        "sharded-bytes",
        ours / 1e6,
        "MB a step, of the busiest host",
        found.peers["DDP"],
        theirs / 1e6,
        ours / theirs,
        "at most 1.01",
        "lower",
    )


def _step(options: Options) -> Row:
    found = found_in(cases.FC_1G_SHARDED, quick=options.quick)
    return answer("sharded-1g", Question(cases.FC_1G_SHARDED, DDP, "at most 1.00"), found)


@cache
def _held_by_all(workers: int, partition: str) -> int:
    """The most that all workers hold beyond torch, in bytes."""
    with tempfile.TemporaryDirectory() as folder:
        looks = watched(_command(folder, workers, partition, MEMORY_STEPS), "volary.worker", folder)
        last = _ends(folder)[-1]
    return sum(max(look.held_bytes for look in each if look.at < last) - torch_bytes() for each in looks)


def _step_of(workers: int, partition: str, steps: int) -> float:
    """How long a step takes, in seconds."""
    with tempfile.TemporaryDirectory() as folder:
        before = _cpu_s()
        subprocess.run(
            _command(folder, workers, partition, steps),
            cwd=folder,
            env=os.environ | ONE_BY_ONE,
            stdout=subprocess.DEVNULL,
            check=True,
        )
        ends = _ends(folder)
        step_s = statistics.median(end - start for start, end in pairwise(ends[WARM_STEPS:]))
        print(f"  {partition}: {step_s:.3f} s per step; {_cpu_s() - before:.1f} CPU seconds of the whole run")
    return step_s


def _command(folder: str, workers: int, partition: str, steps: int) -> list[str]:
    session = SESSION.format(
        networks=HERE / "_networks.py", samples=16 * workers, steps=steps, workers=workers, partition=partition
    )
    Path(folder, "session.yaml").write_text(session, encoding="utf-8")
    return [sys.executable, "-m", "volary", "train", "session.yaml", "--quiet"]


def _ends(folder: str) -> list[float]:
    with RunReader(RunDirectory(Path(folder, "runs", "it"))) as reader:
        return sorted({row.step: row.ended_at for row in reader.steps()}.values())


def _cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _memory(workers: int, _: Options) -> Row:
    ours, theirs = (_held_by_all(workers, partition) / 2**20 for partition in ("sharded", "data"))
    wanted = MOST_MEMORY[workers]
    return Row(f"sharded-shm-{workers}", ours, "MiB of all", "data", theirs, ours / theirs, wanted, "lower")


def _shm_step(workers: int, options: Options) -> Row:
    steps, pairs = (12, 2) if options.quick else (30, 6)
    ours, theirs = (partial(_step_of, workers, partition, steps) for partition in ("sharded", "data"))
    found = paired(ours, theirs, pairs)
    name = f"sharded-shm-step-{workers}"
    return Row(name, found.ours, "s per step", "data", found.theirs, found.ratio, "at most 1.0", "lower")


ROWS: dict[str, Callable[[Options], Row]] = {
    "sharded-bytes": _bytes,
    "sharded-1g": _step,
    **{f"sharded-shm-{workers}": partial(_memory, workers) for workers in MOST_MEMORY},
    **{f"sharded-shm-step-{workers}": partial(_shm_step, workers) for workers in MOST_MEMORY},
}
