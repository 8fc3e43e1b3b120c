"""The most that a worker holds, of ours and of peers, while AlexNet-like (34 million parameters) is trained."""

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
from volary.run.database.reader import RunReader
from volary.run.directory import RunDirectory

SHARE, CLASSES = 16, 100
PARAMETERS = 34_276_900
SESSION = """\
network: {networks}:alexnet_like
data: {{source: {{name: synthetic, shape: [3, 32, 32], classes: {classes}, samples: {samples}}}, batch_size: {samples}}}
optimizer: {{{optimizer}}}
train: {{steps: {steps}, device: cpu}}
evaluate: {{every: never}}
checkpoint: {{every: never}}
strategy:
  {{workers: {workers}, codec: {codec}, exchange: {{route: {route}}}, partition: {partition}, recover: {recover}}}
run: {{name: it}}
"""
OPTIMIZERS = {"sgd": "name: sgd, lr: 0.01, momentum: 0.9", "adam": "name: adam, lr: 0.0001"}


@dataclass(frozen=True)
class Case:
    """How ours sums, and what is wanted of it. partition, recover: as a session has them; those that cut have Adam."""

    route: str
    codec: str
    wanted: str
    partition: str = "data"
    workers: int = 2
    recover: str = "checkpoint"

    @property
    def optimizer(self) -> str:
        """The name that the peer knows, too."""
        return "sgd" if self.partition == "data" else "adam"


def sharded(level: int) -> str:
    """The partition whose workers keep shares of what the level says."""
    return f"{{name: sharded, level: {level}}}"


@cache
def held_by_ours_in(case: Case, steps: int, trials: int) -> float:
    """The median of so many runs of `held_by_ours`, made once for all rows that ask for it."""
    return statistics.median(held_by_ours(case, steps) for _ in range(trials))


def held_by_ours(case: Case, steps: int) -> float:
    """The most that a worker of ours had above torch, in bytes, until its last step begins, in which it saves."""
    with tempfile.TemporaryDirectory() as folder:
        session = SESSION.format(
            networks=HERE / "_networks.py", classes=CLASSES, samples=case.workers * SHARE, steps=steps, **_ways(case)
        )
        Path(folder, "session.yaml").write_text(session, encoding="utf-8")
        command = [sys.executable, "-m", "volary", "train", "session.yaml", "--quiet"]
        workers = watched(command, "volary.worker", folder)
        with RunReader(RunDirectory(Path(folder, "runs", "it"))) as reader:
            trained_at = min(row.ended_at for row in reader.steps(after=steps - 2))
    most = max(look.held_bytes for looks in workers for look in looks if look.at < trained_at)
    saving = max(look.held_bytes for looks in workers for look in looks)
    print(f"  {case.route}, {case.codec}, recover={case.recover}: {_mib(most)}; at the last checkpoint {_mib(saving)}")
    return most - torch_bytes()


def _ways(case: Case) -> Mapping[str, str]:
    ways = {"codec": case.codec, "route": case.route, "workers": str(case.workers), "partition": case.partition}
    return {**ways, "recover": case.recover, "optimizer": OPTIMIZERS[case.optimizer]}


@cache
def held_by_peer(parallel: str, optimizer: str, workers: int, steps: int, trials: int) -> float:
    """The most that a worker of the peer (`parallel`, as _memory_peer.py calls it) had above torch, in bytes."""
    script = str(HERE / "_memory_peer.py")
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={workers}", script]
    found = []
    for _ in range(trials):
        looks = watched([*command, parallel, optimizer, str(steps), str(SHARE), str(CLASSES)], f"-u {script}", ".")
        found.append(max(look.held_bytes for each in looks for look in each))
        print(f"  {parallel}, {optimizer}, {workers} workers: {_mib(found[-1])}")
    return statistics.median(found) - torch_bytes()


def _mib(size_bytes: float) -> str:
    return f"{size_bytes / 2**20:.0f} MiB"
