"""How much memory does a worker need at most, beside one of DistributedDataParallel with gradient_as_bucket_view?

    python benchmarks/memory.py [--quick] [--only NAME] [--json FILE]

Two workers on this machine train AlexNet-like (34 million parameters, 137 MB), 16 samples each, SGD with momentum. Rows
`sharded-adam-...`: Adam, and workers that keep shares, level 1 or 2, two or (`-4`) four of them, between hosts or
(`-one-machine`) in shared memory; the peer has Adam, too. Wanted of these are (8 + 8 / k) / 16 and (4 + 12 / k) / 16:
bytes that a parameter takes with k workers, of those that it takes in the peer.
Every command is one of its own: ours `volary train`, whose workers are started one by one (OMP_PROC_BIND is set), so
that both sides import torch alike; the peer is torchrun with a plain script. `memory-2-hosts`: route torch, by which
the workers of two hosts sum; `memory-one-machine`: in shared memory; `memory-onebit`: codec onebit, between hosts.

The figure is the largest private memory that a worker had until the end of its last step, with its part of what it
shares (PSS without files), above a process that has imported torch; looked at every 10 ms. What writing the last
checkpoint took on top is printed, and no part of the row. --quick: 6 steps instead of 20, and one command a side
instead of three, of which the median counts.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from _in_lab import HERE
from _memory_watch import torch_bytes, watched
from _report import Options, Row, arguments, report
from volary.run.database.reader import RunReader
from volary.run.directory import RunDirectory

SHARE, CLASSES = 16, 100
SESSION = """\
network: {networks}:alexnet_like
data: {{source: {{name: synthetic, shape: [3, 32, 32], classes: {classes}, samples: {samples}}}, batch_size: {samples}}}
optimizer: {{{optimizer}}}
train: {{steps: {steps}, device: cpu}}
evaluate: {{every: never}}
checkpoint: {{every: never}}
strategy: {{workers: {workers}, codec: {codec}, exchange: {{route: {route}}}, partition: {partition}}}
run: {{name: it}}
"""


@dataclass(frozen=True)
class Case:
    """How ours sums, and what is wanted of it. level: of what workers keep shares of; 0: they keep all."""

    route: str
    codec: str
    wanted: str
    level: int = 0
    workers: int = 2

    @property
    def optimizer(self) -> str:
        """The name that the peer knows, too."""
        return "adam" if self.level else "sgd"


CASES = {
    "memory-2-hosts": Case("torch", "none", "at most 1.00"),
    "memory-one-machine": Case("shared", "none", "at most 1.00"),
    "memory-onebit": Case("torch", "onebit", "at most 1.35"),
    "sharded-adam-1": Case("ring", "none", "at most 0.75", 1),
    "sharded-adam-1-4": Case("ring", "none", "at most 0.63", 1, 4),
    "sharded-adam-1-one-machine": Case("shared", "none", "at most 0.75", 1),
    "sharded-adam-2": Case("ring", "none", "at most 0.63", 2),
    "sharded-adam-2-4": Case("ring", "none", "at most 0.44", 2, 4),
}
OPTIMIZERS = {"sgd": "name: sgd, lr: 0.01, momentum: 0.9", "adam": "name: adam, lr: 0.0001"}
PARAMETERS = 34_276_900


def main() -> None:
    """Run the rows that are asked for."""
    options = arguments(__doc__, list(CASES))
    report([_row(name, case, options) for name, case in CASES.items() if options.wants(name)], options.json)


def _row(name: str, case: Case, options: Options) -> Row:
    steps, trials = (6, 1) if options.quick else (20, 3)
    ours = statistics.median(_ours(case, steps) for _ in range(trials))
    theirs = _theirs(case.optimizer, case.workers, steps, trials)
    print(f"  {name}: {ours / PARAMETERS:.1f} bytes a parameter, with activations; DDP {theirs / PARAMETERS:.1f}")
    return Row(
        name, ours / 2**20, "MiB", "DDP, gradients as bucket views", theirs / 2**20, ours / theirs, case.wanted, "lower"
    )


def _ours(case: Case, steps: int) -> float:
    """The most that a worker of ours had above torch, in bytes."""
    with tempfile.TemporaryDirectory() as folder:
        session = SESSION.format(
            networks=HERE / "_networks.py", classes=CLASSES, samples=case.workers * SHARE, steps=steps, **_ways(case)
        )
        Path(folder, "session.yaml").write_text(session, encoding="utf-8")
        command = [sys.executable, "-m", "volary", "train", "session.yaml", "--quiet"]
        workers = watched(command, "volary.worker", folder)
        with RunReader(RunDirectory(Path(folder, "runs", "it"))) as reader:
            trained_at = min(row.ended_at for row in reader.steps(after=steps - 1))
    most = max(look.held_bytes for looks in workers for look in looks if look.at < trained_at)
    saving = max(look.held_bytes for looks in workers for look in looks)
    print(f"  {case.route}, {case.codec}: {_mib(most)}; at the last checkpoint {_mib(saving)}")
    return most - torch_bytes()


def _ways(case: Case) -> Mapping[str, str]:
    partition = f"{{name: sharded, level: {case.level}}}" if case.level else "data"
    ways = {"codec": case.codec, "route": case.route, "workers": str(case.workers), "partition": partition}
    return {**ways, "optimizer": OPTIMIZERS[case.optimizer]}


@cache
def _theirs(optimizer: str, workers: int, steps: int, trials: int) -> float:
    """The most that a worker of the peer had above torch, in bytes."""
    script = str(HERE / "_memory_ddp.py")
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={workers}", script]
    found = []
    for _ in range(trials):
        looks = watched([*command, optimizer, str(steps), str(SHARE), str(CLASSES)], f"-u {script}", ".")
        found.append(max(look.held_bytes for each in looks for look in each))
        print(f"  DDP, {optimizer}, {workers} workers: {_mib(found[-1])}")
    return statistics.median(found) - torch_bytes()


def _mib(size_bytes: float) -> str:
    return f"{size_bytes / 2**20:.0f} MiB"


if __name__ == "__main__":
    main()
