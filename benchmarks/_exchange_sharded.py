"""The rows `sharded-...` of exchange.py: what do workers cost that keep shares?

`sharded-bytes`, `sharded-1g`: bytes that the busiest host sends, and seconds, of a step of AlexNet-like on four hosts
at 1 Gbit/s, beside DistributedDataParallel's. `sharded-shm-2`, `sharded-shm-4`: so many workers of this machine, Adam:
the most that each of them holds above a process that has imported torch, added up, beside that with `partition: data`;
`sharded-shm-step-...`: seconds of a step (the median of their rows).
"""

from __future__ import annotations

import statistics
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
from _memory_watch import torch_bytes, watched
from _report import Options, Row
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
def _of_all(workers: int, partition: str, steps: int) -> tuple[float, float]:
    """What all workers hold at most beyond torch, in bytes, and how long a step takes."""
    with tempfile.TemporaryDirectory() as folder:
        samples = 16 * workers
        session = SESSION.format(
            networks=HERE / "_networks.py", samples=samples, steps=steps, workers=workers, partition=partition
        )
        Path(folder, "session.yaml").write_text(session, encoding="utf-8")
        looks = watched([sys.executable, "-m", "volary", "train", "session.yaml", "--quiet"], "volary.worker", folder)
        with RunReader(RunDirectory(Path(folder, "runs", "it"))) as reader:
            ends = sorted({row.step: row.ended_at for row in reader.steps()}.values())
    most = (max(look.held_bytes for look in each if look.at < ends[-1]) - torch_bytes() for each in looks)
    return float(sum(most)), statistics.median(end - start for start, end in pairwise(ends[2:]))


def _shm(workers: int, step: bool, options: Options) -> Row:
    steps = 8 if options.quick else 30
    (ours, ours_s), (theirs, theirs_s) = (_of_all(workers, one, steps) for one in ("sharded", "data"))
    if step:
        name, ratio = f"sharded-shm-step-{workers}", ours_s / theirs_s
        return Row(name, ours_s, "s per step", "data", theirs_s, ratio, "at most 1.0", "lower")
    wanted = MOST_MEMORY[workers]
    return Row(
        f"sharded-shm-{workers}", ours / 2**20, "MiB of all", "data", theirs / 2**20, ours / theirs, wanted, "lower"
    )


ROWS: dict[str, Callable[[Options], Row]] = {
    "sharded-bytes": _bytes,
    "sharded-1g": _step,
    **{f"sharded-shm-{workers}": partial(_shm, workers, False) for workers in MOST_MEMORY},
    **{f"sharded-shm-step-{workers}": partial(_shm, workers, True) for workers in MOST_MEMORY},
}
