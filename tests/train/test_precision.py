"""Mixed precision on the CPU, clipping, and the learning rate's schedule, in the loop."""

from __future__ import annotations

import math
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from train._training import Trained, looked_at, made, session, started, trained
from volary.session.train_section import Train
from volary.train.loop import Training, train
from volary.train.update.precision import Precision
from volary.train.update.update import Update


def precise(kind: str, steps: int = 12, **settings: Any) -> Any:
    return session(
        "Dropping", source={"name": "points", "samples": 40}, train={"steps": steps, "precision": kind}, **settings
    )


def train_in_few_bits(rank: int, world_size: int) -> dict[str, Trained]:
    found = {kind: trained(rank, world_size, precise(kind), kind) for kind in ("fp32", "bf16", "fp16")}
    saved = precise("fp16", checkpoint={"every": "5 steps", "keep_last": 9})
    found["whole"] = trained(rank, world_size, saved, "resumed")
    if rank == 0:
        Path("resumed/step-00000012").rename("later")
    torch.distributed.barrier()
    it = made(rank, world_size, saved, "resumed")
    it.coordinator.saver.resume()
    assert it.recorder.step == 10
    with started(it):
        assert it.precision.state()["scale"] == 65536.0
        found["resumed"] = looked_at(it, train(it))
    return found


def test_few_bits_train_and_resume_with_the_loss_scale_on_two_workers(workers):
    for found in workers(2, train_in_few_bits):
        for kind in ("bf16", "fp16"):
            assert found[kind].outcome == "finished"
            assert found[kind].losses == pytest.approx(found["fp32"].losses, abs=0.1)
            assert found[kind].losses != found["fp32"].losses
        for name, parameter in found["whole"].parameters.items():
            assert parameter.dtype is torch.float32
            assert torch.equal(parameter, found["resumed"].parameters[name])


def overflow(rank: int, world_size: int) -> tuple[bool, float, bool]:
    it = made(rank, world_size, precise("fp16", steps=1))
    before = {name: p.detach().clone() for name, p in it.flow.module.named_parameters()}
    if rank == 1:  # one worker's gradient does not fit into 16 bits
        next(it.flow.module.parameters()).register_hook(lambda gradient: gradient * math.inf)
    with started(it):
        train(it)
    same = all(torch.equal(p, before[name]) for name, p in it.flow.module.named_parameters())
    return same, it.precision.state()["scale"], bool(it.recorder.rows[0].loss > 0)


def test_an_overflow_on_one_worker_skips_the_update_and_shrinks_the_scale_on_all(workers):
    assert workers(2, overflow) == [(True, 32768.0, True)] * 2


OWN_SCALES = {
    "local": {"consistency": {"name": "local", "period": 2}},
    "gossip": {"consistency": "gossip"},
}


def resume_with_own_scales(rank: int, world_size: int) -> dict[str, tuple[float, Trained, Trained]]:
    """By model of consistency: this worker's scale when it was stopped, the whole run, and what was resumed of it."""
    found = {}
    for name, strategy in OWN_SCALES.items():
        one = precise("fp16", steps=8, strategy=strategy, checkpoint={"every": "4 steps"})
        stopped = overflowing(one, rank, world_size, name, until=lambda step: step >= 4)
        scale = stopped.precision.state()["scale"]
        whole = looked_at(overflowing(one, rank, world_size, f"{name}, whole"))
        found[name] = scale, whole, looked_at(overflowing(one, rank, world_size, name))
    return found


def overflowing(one: Any, rank: int, world_size: int, folder: str, **more: Any) -> Training[Any]:
    """A training in which rank 1's gradients do not fit into 16 bits at the scale that it begins with."""
    it = made(rank, world_size, one, folder, **more)
    it.coordinator.saver.resume()
    if rank == 1:
        first = next(it.flow.module.parameters())
        first.register_hook(lambda gradient: gradient * (math.inf if it.precision.state()["scale"] > 40_000 else 1))
    with started(it):
        train(it)
    return it


def test_where_each_worker_has_a_loss_scale_of_its_own_it_resumes_with_that_bit_for_bit(workers):
    first, second = workers(2, resume_with_own_scales)
    for name in OWN_SCALES:
        assert (first[name][0], second[name][0]) == (65536.0, 32768.0)
        for _, whole, resumed in (first[name], second[name]):
            assert resumed.losses == whole.losses[4:]
            assert all(torch.equal(one, resumed.parameters[key]) for key, one in whole.parameters.items())


class Constant:
    """A schedule that leaves the rate as it is."""

    def factor(self, step: int, steps: int) -> float:
        return 1.0


@pytest.mark.parametrize(
    ("clips", "first", "second"),
    [
        ({}, [3.0, -0.5], -4.0),
        ({"clip_value": 2.0}, [2.0, -0.5], -2.0),
        ({"clip_value": 1.0, "clip_norm": 1.0}, [1 / 1.5, -0.5 / 1.5], -1 / 1.5),
    ],
)
def test_clipping_is_by_value_first_and_then_by_the_norm_of_all(clips, first, second):
    named = [("first", nn.Parameter(torch.zeros(2))), ("second", nn.Parameter(torch.zeros(1)))]
    precision = Precision("fp32", torch.device("cpu"))
    settings, build = Train(steps=1, **clips), partial(torch.optim.SGD, lr=1.0)
    update = Update(named, Constant(), settings, precision, 1, lambda _: build, True)
    named[0][1].grad, named[1][1].grad = torch.tensor([3.0, -0.5]), torch.tensor([-4.0])
    update.prepare(0)
    update.apply()
    assert named[0][1].tolist() == pytest.approx([-one for one in first], rel=1e-5)
    assert named[1][1].tolist() == pytest.approx([-second], rel=1e-5)


def test_the_schedule_decides_the_rate_of_every_step(tmp_path):
    schedule = {"name": "step", "every": 3, "gamma": 0.5, "warmup": 2}
    it = made(0, 1, session("Exact", schedule=schedule, train={"steps": 8}), tmp_path / "c")
    rates = [row.lr for row in looked_at(it, train(it)).rows]
    assert rates == pytest.approx([0.1, 0.2, 0.2, 0.1, 0.1, 0.1, 0.05, 0.05])
