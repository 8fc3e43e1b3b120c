"""A peer's training, as one rank of it, for _time_to_loss.py.

A lab starts it as `python _loss_peer.py session.yaml '{"side": NAME, "wanted": LOSS}'`.
"""

from __future__ import annotations

import json
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from typing import TYPE_CHECKING

import torch
from torch import distributed, nn
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import fp16_compress_hook
from torch.distributed.algorithms.ddp_comm_hooks.post_localSGD_hook import PostLocalSGDState, post_localSGD_hook
from torch.distributed.algorithms.ddp_comm_hooks.powerSGD_hook import PowerSGDState, powerSGD_hook
from torch.distributed.algorithms.model_averaging.averagers import PeriodicModelAverager
from torch.distributed.optim import PostLocalSGDOptimizer
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel

from _in_lab import be_rank
from _local_models import PERIOD
from _time_to_loss import FOUND, LR
from _tuned_ddp import TUNED
from volary.data.feed import Feed
from volary.session.spec import Session
from volary.sharding.samples import SampleShare
from volary.train.evaluation import over_all, totals
from volary.train.lockstep.lockstep_data import ValidationBatches
from volary.train.model import build_model
from volary.train.state.seeds import seed_all
from volary.train.worker.connect import joined

if TYPE_CHECKING:
    from volary.comm.groups.group import Group
    from volary.run.verdict import Outcome
    from volary.train.member.process import Membership
    from volary.train.member.pulse import Pulse
    from volary.train.recording.recorder import Recorder

CPU = torch.device("cpu")
ALL_MB = 10**5  # a bucket that holds every gradient: with several, PowerSGD's all-reduces meet each other in gloo
POWERSGD_FROM, POWERSGD_RANK = 2, 4

Side = tuple[nn.Module, torch.optim.Optimizer]
Made = Callable[[nn.Module, "Membership"], AbstractContextManager[Side]]


def train(member: Membership, recorder: Recorder, _pulse: Pulse) -> Outcome:
    """The job: begin with the session's values, take its batches, and write down what was found."""
    signal.signal(signal.SIGTERM, signal.SIG_DFL)  # there is nothing to save
    session, asked = Session.read(member.directory.session), json.loads(sys.argv[2])
    with joined(member, recorder, CPU) as group:
        found = list(_losses(session, asked["side"], asked["wanted"], member, group, recorder))
    if member.place.rank == 0:
        (member.directory.results / FOUND).write_text(json.dumps(found), encoding="utf-8")
    return "finished"


def _losses(
    session: Session, side: str, wanted: float, member: Membership, group: Group, recorder: Recorder
) -> Iterator[tuple[float, int, float]]:
    """Yield each evaluation: seconds since the start, steps done, and the loss, until it is as low as wanted."""
    seed_all(session.train.seed)
    model, share = build_model(session, CPU), SampleShare(group.rank, group.size)
    evaluating, validation = model.flow("evaluate"), ValidationBatches(model, share)
    feed = Feed(model.samples, session.data.batch_size, share=share, seed=session.train.seed)
    feed.limit(session.train.steps or 0)
    with SIDES[side](model.module, member) as (module, optimizer):
        distributed.barrier()
        started = time.perf_counter()
        for number, batch in enumerate(feed, start=1):
            recorder.enter("forward")
            cross_entropy(module(batch.inputs).flatten(0, -2), batch.targets.flatten()).backward()
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
            if session.evaluate.every.ends(number, session.train.steps or 0):
                measured, *_ = over_all(*totals(evaluating, validation(), CPU, recorder.enter), group)
                loss = model.criterion.figures(measured)["loss"]
                yield time.perf_counter() - started, number, loss
                if loss <= wanted:
                    return


def _adamw(module: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.AdamW(module.parameters(), lr=LR, fused=True)


@contextmanager
def _ddp(module: nn.Module, _: Membership) -> Iterator[Side]:
    yield DistributedDataParallel(module, **TUNED), _adamw(module)


@contextmanager
def _fp16(module: nn.Module, _: Membership) -> Iterator[Side]:
    parallel = DistributedDataParallel(module, **TUNED)
    parallel.register_comm_hook(None, fp16_compress_hook)
    yield parallel, _adamw(module)


@contextmanager
def _powersgd(module: nn.Module, _: Membership) -> Iterator[Side]:
    parallel = DistributedDataParallel(module, **TUNED | {"bucket_cap_mb": ALL_MB})
    state = PowerSGDState(None, matrix_approximation_rank=POWERSGD_RANK, start_powerSGD_iter=POWERSGD_FROM)
    parallel.register_comm_hook(state, powerSGD_hook)
    yield parallel, _adamw(module)


@contextmanager
def _post_local(module: nn.Module, _: Membership) -> Iterator[Side]:
    """Without a warm-up, which would take each step as long as DistributedDataParallel's."""
    parallel = DistributedDataParallel(module, **TUNED)
    alone, _groups = distributed.new_subgroups(group_size=1)
    parallel.register_comm_hook(PostLocalSGDState(None, alone, start_localSGD_iter=0), post_localSGD_hook)
    averager = PeriodicModelAverager(period=PERIOD, warmup_steps=PERIOD - 1)  # the first mean is after a period, too
    yield parallel, PostLocalSGDOptimizer(optim=_adamw(module), averager=averager)


@contextmanager
def _diloco(module: nn.Module, member: Membership, *, fragments: int, delay: int, alpha: float) -> Iterator[Side]:
    from _torchft_side import diloco  # where torchft is installed

    inner = _adamw(module)
    with diloco(module, inner, member, fragments=fragments, delay=delay, alpha=alpha):
        yield module, inner


SIDES: dict[str, Made] = {
    "DDP": _ddp,
    "DDP, fp16 hook": _fp16,
    "DDP, PowerSGD hook": _powersgd,
    "torch post-local SGD": _post_local,
    "torchft DiLoCo": partial(_diloco, fragments=1, delay=0, alpha=0.0),
    "torchft Streaming DiLoCo": partial(_diloco, fragments=4, delay=3, alpha=0.5),
}

if __name__ == "__main__":
    sys.exit(be_rank("_loss_peer:train"))
