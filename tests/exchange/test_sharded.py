"""Parameters sharded among workers fit the seam: one update rule, by slices, whoever keeps them."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from _workers import joined
from exchange._sharded import By, ShardedKeeper
from volary.comm.sums.route import Memory
from volary.exchange.gradients.buckets import Buckets
from volary.exchange.gradients.plan import BucketPlan
from volary.exchange.representations.exact import EXACT

SHAPES = {"weight": (5, 3), "bias": (5,), "scale": ()}
ADAM = {"lr": 0.1, "weight_decay": 0.01}


def begun() -> dict[str, nn.Parameter]:
    generator = torch.Generator().manual_seed(1)
    return {name: nn.Parameter(torch.randn(shape, generator=generator)) for name, shape in SHAPES.items()}


def gradient(name: str, rank: int, step: int) -> Tensor:
    return torch.randn(SHAPES[name], generator=torch.Generator().manual_seed(1000 * step + 10 * rank + len(name)))


def sharded(rank: int, world_size: int) -> tuple[dict[str, Tensor], dict[str, tuple[int, int, int]]]:
    """The parameters after some steps, and of each which values' moments this worker remembers, and how many."""
    parameters, cpu = begun(), torch.device("cpu")
    plans = [BucketPlan(list(parameters.items()), torch.float32, cpu, EXACT)]
    buckets = Buckets(plans, [Memory.in_place(plan.shape) for plan in plans], chunk_mb=25, private=False)
    keeper = ShardedKeeper(joined(), buckets, By(torch.optim.Adam, **ADAM))
    for step in range(3):
        buckets.fill(lambda slot, now=step: slot.view.copy_(gradient(slot.name, rank, now)))
        for chunk in buckets.chunks:
            keeper.push(chunk.index)
        keeper.release(step + 1)
        for slot in buckets.slots:
            keeper.pull(slot.gate)
    kept = [one for number in range(len(buckets.slots)) for one in keeper.rule.state(number)]
    remembered = {one.part.name: (one.part.start, one.part.end, len(one.each["exp_avg"])) for one in kept if one.each}
    return {name: one.detach() for name, one in parameters.items()}, remembered


def test_each_worker_updates_its_share_with_its_share_of_the_optimiser_s_state_and_all_read_what_one_device_has(
    workers,
):
    alone = begun()
    rule = torch.optim.Adam(alone.values(), **ADAM)
    for step in range(3):
        for name, parameter in alone.items():
            parameter.grad = gradient(name, 0, step) + gradient(name, 1, step)
        rule.step()
    for rank, (parameters, remembered) in enumerate(workers(2, sharded)):
        for name, parameter in alone.items():
            torch.testing.assert_close(parameters[name], parameter.detach(), rtol=0, atol=1e-6)
        assert remembered["weight"] == [(0, 7, 7), (7, 15, 8)][rank]
        assert remembered["bias"] == [(0, 2, 2), (2, 5, 3)][rank]
