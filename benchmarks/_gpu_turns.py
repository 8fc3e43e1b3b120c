"""A worker of gpu.py: our loop and a hand-written one on a device, a turn each. Its argument is JSON.

rank and size: of this worker. device: that all of them train on. folder: where they meet, and rank 0 writes. network,
source and batch_size: of the session. pairs and turn_s: how many turns, and about how long one is.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from copy import deepcopy
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from torch import distributed, nn
from torch.distributed import FileStore, HashStore  # type: ignore[attr-defined]  # torch exports them untyped
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel

from _report import paired
from volary.comm.groups.group import Group
from volary.data.feed import Feed
from volary.run.checkpoints import Checkpoints
from volary.session.spec import Session
from volary.train.agreement.first_state import DeferredTensors
from volary.train.loop import train
from volary.train.member.bulletin import BoardBulletin
from volary.train.model import Model, build_model
from volary.train.recording.recorder import Recorder
from volary.train.state.drafts import DirectoryDrafts
from volary.train.state.seeds import seed_all
from volary.train.worker.build import assemble

Loop = Callable[[int], None]  # trains for so many steps

FOUND = "turns.json"
WARM_STEPS = 12  # in which ours chooses its order, and DistributedDataParallel makes its buckets anew


def main() -> None:
    """Take turns, and let rank 0 write the pairs down."""
    work = json.loads(sys.argv[1])
    device, group = torch.device(work["device"]), _met(work)
    session = _session(work)
    seed_all(1)
    model = build_model(session, device)
    theirs = _peer(deepcopy(model.module), model, session, device, group)
    ours, close = _ours(model, device, group, Path(work["folder"]))
    turns = Turns(device, group, [ours, theirs], work["turn_s"])
    found = paired(lambda: turns.take(ours), lambda: turns.take(theirs), work["pairs"])
    close()
    if group.leads:
        Path(work["folder"], FOUND).write_text(json.dumps(asdict(found)), encoding="utf-8")
    if group.size > 1:
        distributed.destroy_process_group()


def _met(work: dict[str, Any]) -> Group:
    """All workers. Several are in a group of torch's own gloo, which adds up tensors of a device: NCCL takes no two
    ranks of one.
    """
    rank, size = work["rank"], work["size"]
    if size == 1:
        return Group(BoardBulletin(HashStore(), 0, 1, 0))
    distributed.init_process_group("gloo", store=FileStore(f"{work['folder']}/gloo", size), rank=rank, world_size=size)
    bulletin = BoardBulletin(FileStore(f"{work['folder']}/bulletin", size), rank, size, 0)
    return Group(bulletin, distributed.group.WORLD)


def _session(work: dict[str, Any]) -> Session:
    return Session(
        network=work["network"],
        data={"source": work["source"], "batch_size": work["batch_size"]},
        optimizer={"name": "sgd", "lr": 0.01, "momentum": 0.9},
        train={"steps": 10**9, "compare_replicas": "never"},
        evaluate={"every": "never"},
        checkpoint={"every": "never"},
        strategy={"workers": work["size"]},
    )


def _ours(model: Model, device: torch.device, group: Group, folder: Path) -> tuple[Loop, Callable[[], None]]:
    """The training of `volary train`, and how it ends. A collective call."""
    recorder = Recorder(group.rank)
    training = assemble(
        model,
        group=group,
        device=device,
        recorder=recorder,
        drafts=DirectoryDrafts(Checkpoints(folder / "unused"), recorder, keep_last=1, keep_best=False),
        asked_to_end=lambda: False,
    )
    training.coordinator.rank.replica.start(DeferredTensors(new=False))

    def run(steps: int) -> None:
        training.coordinator.rank.data.feed.limit(training.coordinator.rank.data.feed.step + steps)
        train(training)
        training.replica.settle()

    return run, training.replica.close


def _peer(module: nn.Module, model: Model, session: Session, device: torch.device, group: Group) -> Loop:
    """The loop that a PyTorch user writes; of several workers with DistributedDataParallel. A collective call."""
    if group.size > 1:
        module = DistributedDataParallel(module, gradient_as_bucket_view=True, static_graph=True)
    rule = session.optimizer
    optimizer = torch.optim.SGD(module.parameters(), lr=rule.lr, momentum=rule.momentum, fused=True)
    feed = Feed(model.samples, session.data.batch_size // group.size, seed=group.rank)

    def run(steps: int) -> None:
        for _ in range(steps):
            batch = next(feed).to(device)
            loss = cross_entropy(module(batch.inputs).flatten(0, -2), batch.targets.flatten())
            loss.backward()
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
            loss.item()

    return run


class Turns:
    """Times turns of about `turn_s`, of equally many steps for both loops; all workers take them together."""

    def __init__(self, device: torch.device, group: Group, loops: list[Loop], turn_s: float) -> None:
        self._device, self._group, self._steps = device, group, WARM_STEPS
        for loop in loops:
            self.take(loop)
        self._steps = max(1, round(turn_s / self.take(loops[0])))

    def take(self, loop: Loop) -> float:
        """Seconds per step of a turn of `loop`: the slowest worker's, the same on all."""
        self._slowest(0.0)
        started_s = time.perf_counter()
        loop(self._steps)
        if self._device.type == "cuda":
            torch.cuda.synchronize(self._device)
        return self._slowest(time.perf_counter() - started_s) / self._steps

    def _slowest(self, seconds: float) -> float:
        found = torch.tensor(seconds, dtype=torch.float64)
        if self._group.size > 1:
            distributed.all_reduce(found, distributed.ReduceOp.MAX)
        return found.item()


if __name__ == "__main__":
    main()
