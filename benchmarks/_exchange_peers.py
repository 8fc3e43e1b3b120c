"""Peers of Volary's exchange that a PyTorch user would take instead, for _exchange_turns.py."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import torch
from torch import distributed, nn
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import fp16_compress_hook
from torch.distributed.algorithms.ddp_comm_hooks.powerSGD_hook import PowerSGDState, powerSGD_hook
from torch.distributed.device_mesh import DeviceMesh
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel

from _fsdp import shard_by_layer
from _torch_pipeline import StagePeer
from _tuned_ddp import FUSED, TUNED
from volary.data.feed import Feed
from volary.partition import ROOM as PARTITIONS

if TYPE_CHECKING:
    from volary.session.spec import Session
    from volary.train.model import Model

Hook = Callable[[DistributedDataParallel, distributed.ProcessGroup], None]
Wrap = Callable[["Setting", nn.Module, distributed.ProcessGroup], nn.Module]

CPU = torch.device("cpu")
ALL_MB = 10**5  # a bucket that holds every gradient
POWERSGD_FROM = 2  # the first step that it may encode; it makes its memory there

# kept until the process ends: a gloo thread that is the last to hold its group, in a hook's callback, would join itself
_groups: list[distributed.ProcessGroup] = []


def _fp16(module: DistributedDataParallel, group: distributed.ProcessGroup) -> None:
    module.register_comm_hook(group, fp16_compress_hook)


def _powersgd(module: DistributedDataParallel, group: distributed.ProcessGroup) -> None:
    state = PowerSGDState(group, matrix_approximation_rank=2, start_powerSGD_iter=POWERSGD_FROM)
    module.register_comm_hook(state, powerSGD_hook)


def _ddp(setting: Setting, module: nn.Module, group: distributed.ProcessGroup) -> nn.Module:
    # all ranks have drawn the same parameters, and sending them would take a slow link's turn
    parallel = DistributedDataParallel(module, process_group=group, init_sync=False, **setting.parallel)
    setting.hook(parallel, group)
    return parallel


def _fsdp2(_: Setting, module: nn.Module, group: distributed.ProcessGroup) -> nn.Module:
    shard_by_layer(module, DeviceMesh.from_group(group, "cpu"))
    return module


@dataclass(frozen=True)
class Setting:
    """How a peer is set: arguments of torch.optim.SGD and of DistributedDataParallel, and its hook.

    warm_up: steps until it has found its pace; DistributedDataParallel makes its buckets anew after the first. wrap:
    makes a network parallel.
    """

    rule: dict[str, Any] = field(default_factory=lambda: FUSED)
    parallel: dict[str, Any] = field(default_factory=lambda: TUNED)
    hook: Hook = lambda _module, _group: None
    warm_up: int = 2
    wrap: Wrap = _ddp
    staged: bool = False  # a pipeline of all ranks, which learn from the same batches


# by kind; without trials the first of each kind is taken
PEERS: dict[str, dict[str, Setting]] = {
    "DDP": {
        "DDP, tuned": Setting(),
        "DDP, tuned, 5 MB": Setting(parallel=TUNED | {"bucket_cap_mb": 5}),
        "DDP, tuned, 100 MB": Setting(parallel=TUNED | {"bucket_cap_mb": 100}),
        "DDP, tuned, plain SGD": Setting(rule={}),
        "DDP": Setting(rule={}, parallel={}),
    },
    "fp16": {
        "DDP, tuned, fp16 hook": Setting(hook=_fp16),
        "DDP, tuned, fp16 hook, 100 MB": Setting(parallel=TUNED | {"bucket_cap_mb": 100}, hook=_fp16),
    },
    # with several buckets its all-reduces meet those of other buckets, and gloo ends the process
    "PowerSGD": {
        "DDP, tuned, PowerSGD hook": Setting(
            parallel=TUNED | {"bucket_cap_mb": ALL_MB}, hook=_powersgd, warm_up=POWERSGD_FROM + 2
        ),
    },
    "pipelining": {"torch.distributed.pipelining, stages by count": Setting(staged=True)},
    "FSDP2": {"FSDP2 by layer": Setting(rule={}, wrap=_fsdp2)},
}


def of_one_rank(session: Session, ranks: int) -> Session:
    """The session of one of so many ranks alone, with its share of each batch."""
    data, strategy = session.data, session.strategy
    share = data.batch_size // ranks
    alone = replace(strategy, workers=1, partition=PARTITIONS.load("data")())
    return replace(session, data=replace(data, batch_size=share), strategy=alone)


class Peers:
    """Makes peers, each on a copy of the network. session: with one rank's batch size."""

    def __init__(self, session: Session, model: Model, module: nn.Module) -> None:
        self._session, self._samples, self._module = session, model.samples, module
        self._group = distributed.new_group(backend="gloo")
        _groups.append(self._group)

    def make(self, setting: Setting) -> Peer | StagePeer:
        """The peer that is set so. A collective call."""
        copied, batch_size = deepcopy(self._module), self._session.data.batch_size
        if setting.staged:
            feed = Feed(self._samples, batch_size * distributed.get_world_size(), seed=0)
            return StagePeer(copied, deepcopy(copied), self._session.optimizer, feed, self._group)
        module = setting.wrap(setting, copied, self._group)
        optimizer = self._session.optimizer
        return Peer(
            module,
            torch.optim.SGD(module.parameters(), lr=optimizer.lr, momentum=optimizer.momentum, **setting.rule),
            Feed(self._samples, batch_size, seed=distributed.get_rank()),
        )


class Peer:
    """One of them: its loop, and the same without exchange."""

    def __init__(self, module: nn.Module, optimizer: torch.optim.Optimizer, feed: Feed) -> None:
        self.module, self._optimizer, self._feed = module, optimizer, feed

    def run(self, steps: int) -> None:
        """Train for so many steps."""
        for _ in range(steps):
            batch = next(self._feed).to(CPU)  # an image's bytes become values
            scores = self.module(batch.inputs)
            loss = cross_entropy(scores.flatten(0, -2), batch.targets.flatten())
            loss.backward()
            self._optimizer.step()
            self._optimizer.zero_grad(set_to_none=True)
            loss.item()

    def run_alone(self, steps: int) -> None:
        """Train on this rank's batches only, which DistributedDataParallel can."""
        assert isinstance(self.module, DistributedDataParallel)
        with self.module.no_sync():
            self.run(steps)
