"""The rows `tensor-bytes`, `hybrid-bytes`, `hybrid-memory`, `hybrid-memory-peak` of partitions.py: what do workers send
and keep, in parts?

`tensor-bytes`: a perceptron of two layers, 4096 x 4096 each, on two workers, 64 samples a step: bytes that a worker
sends, beside those of an all-reduce of its gradients. `hybrid-bytes`: likewise of AlexNet-like on four workers, 16
samples each. DistributedDataParallel sends what the all-reduce does: 2 (K - 1) / K of the gradients (Patarasuk & Yuan
2009). `hybrid-memory`: parameters, gradients and Adam's state of the worker that keeps most, of AlexNet-like on four
workers, counted from the map of who keeps what, beside those of DistributedDataParallel, which has all of them.
`hybrid-memory-peak`: the most that a worker holds above a process that has imported torch until its last
step, beside the most of DistributedDataParallel's (gradients as bucket views).
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median

from torch import nn

import _memory_runs
from _memory_runs import held_by_ours_in, held_by_peer
from _networks import alexnet_like
from _report import Options, Row
from volary.naming import named_parameters
from volary.partition import ROOM
from volary.run.database.reader import RunReader
from volary.run.directory import RunDirectory

HERE = Path(__file__).resolve().parent
WIDTH = 4096
ADAM_BYTES = 16  # of a value: the parameter, its gradient, and two that Adam keeps
SESSION = """\
network: {network}
data: {{source: {{name: synthetic, shape: {shape}, classes: {classes}, samples: {batch}}}, batch_size: {batch}}}
train: {{steps: {steps}, device: cpu, compare_replicas: never}}
evaluate: {{every: never}}
checkpoint: {{every: never}}
strategy: {{workers: {workers}, exchange: {{route: torch}}, partition: {partition}}}
run: {{name: it}}
"""


def perceptron() -> nn.Module:
    """Two fully connected layers: values (batch, WIDTH) to (batch, WIDTH)."""
    return nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.ReLU(), nn.Linear(WIDTH, WIDTH))


@dataclass(frozen=True)
class Case:
    """A network on so many workers, and what is sent beside an all-reduce's bytes, at most."""

    network: str
    shape: list[int]
    classes: int
    batch: int
    workers: int
    partition: str
    wanted: str


CASES = {
    "tensor-bytes": Case(f"{HERE}/_parts_bytes.py:perceptron", [WIDTH], WIDTH, 64, 2, "tensor", "at most 0.01"),
    "hybrid-bytes": Case(f"{HERE}/_networks.py:alexnet_like", [3, 32, 32], 100, 64, 4, "hybrid", "at most 0.05"),
}

HYBRID = _memory_runs.Case("ring", "none", "at most 0.43", "hybrid", 4)


def sent_mb(case: Case, partition: str, steps: int) -> float:
    """Megabytes that the worker which sends most sends in a step: the median, without the first one, which has more."""
    with tempfile.TemporaryDirectory() as folder:
        settings = {**vars(case), "partition": partition, "steps": steps}
        Path(folder, "session.yaml").write_text(SESSION.format(**settings), encoding="utf-8")
        subprocess.run([sys.executable, "-m", "volary", "train", "session.yaml", "--quiet"], cwd=folder, check=True)
        with RunReader(RunDirectory(Path(folder, "runs", "it"))) as run:
            return max(median([row.sent_bytes for row in run.steps(after=1, rank=rank)]) for rank in run.ranks()) / 1e6


def _row(name: str, options: Options) -> Row:
    case, steps = CASES[name], 3 if options.quick else 6
    ours, theirs = (sent_mb(case, one, steps) for one in (case.partition, "data"))
    return Row(name, ours, "MB a step", "all-reduce", theirs, ours / theirs, case.wanted, "lower")


def _memory(_: Options) -> Row:
    case = CASES["hybrid-bytes"]
    module = alexnet_like(case.classes)
    sizes = {name: parameter.numel() for name, parameter in named_parameters(module)}
    parts = [ROOM.load(case.partition)().part(module, rank, case.workers).holdings for rank in range(case.workers)]
    ours = ADAM_BYTES * max(sum(part.computes_with(*one) for one in sizes.items()) for part in parts) / 2**20
    theirs = ADAM_BYTES * sum(sizes.values()) / 2**20
    return Row("hybrid-memory", ours, "MiB", "DDP, by the formula", theirs, ours / theirs, "at most 0.27", "lower")


def _peak(options: Options) -> Row:
    steps, trials = (6, 1) if options.quick else (20, 3)
    ours = held_by_ours_in(HYBRID, steps, trials) / 2**20
    theirs = held_by_peer("DDP", HYBRID.optimizer, HYBRID.workers, steps, trials) / 2**20
    return Row("hybrid-memory-peak", ours, "MiB", "DDP", theirs, ours / theirs, HYBRID.wanted, "lower")


ROWS: dict[str, Callable[[Options], Row]] = {
    **{name: partial(_row, name) for name in CASES},
    "hybrid-memory": _memory,
    "hybrid-memory-peak": _peak,
}
