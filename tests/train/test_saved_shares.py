"""All workers write the state that they have alike, a share each, and any number of workers reads it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from hypothesis import given
from hypothesis import strategies as some

from train._training import Quick, session, trained
from volary.run.checkpoints import Checkpoints
from volary.sharding.ranges import Range
from volary.train.state.optimizer_state import OptimizerState
from volary.train.update.optimizer_rule import PartState


def state_of(sizes: list[int], bare: int) -> OptimizerState:
    """Adam's state of parameters of these sizes, and of as many of which there is nothing but a count."""
    parts = [
        PartState(
            Range(f"p{number}", 0, size),
            {"exp_avg": torch.arange(float(size)), "exp_avg_sq": torch.arange(float(size)).double()},
            {"step": torch.tensor(3.0)},
        )
        for number, size in enumerate(sizes)
    ]
    return OptimizerState([*parts, *(PartState(Range(f"b{n}", 0, 5), {}, {"seen": n}) for n in range(bare))])


@given(some.lists(some.integers(0, 300), max_size=5), some.integers(0, 2), some.integers(1, 5), some.integers(0, 5000))
def test_shares_are_all_of_it_once_and_about_as_many_bytes(sizes, bare, ranks, first):
    whole = state_of(sizes, bare)
    shares = [whole.share(rank, ranks, first).plain() for rank in range(ranks)]
    again = OptimizerState.from_plain(part for share in shares for part in share)
    for number, size in enumerate(sizes):
        part = again.of(Range(f"p{number}", 0, size))
        assert part.whole == {"step": torch.tensor(3.0)}
        assert torch.equal(part.each["exp_avg"], torch.arange(float(size)))
        assert torch.equal(part.each["exp_avg_sq"], torch.arange(float(size)).double())
    assert [again.of(Range(f"b{n}", 0, 5)).whole for n in range(bare)] == [{"seen": n} for n in range(bare)]
    tensors = [entry for share in shares for _, _, _, each, *_ in share for entry in each.values()]
    assert all(one.untyped_storage().nbytes() == one.nbytes for one in tensors if one.numel())
    written = [12 * sum(end - start for name, start, end, *_ in share if name[0] == "p") for share in shares]
    assert sum(written) == 12 * sum(sizes)
    even = (first + sum(written)) / ranks
    if ranks > 1 and first > even:  # more than its share without any of this
        wanted = [0.0, *[sum(written) / (ranks - 1)] * (ranks - 1)]
    else:
        wanted = [even - first, *[even] * (ranks - 1)]
    assert all(abs(one - other) <= 12 for one, other in zip(written, wanted, strict=True))


def of_two(rank: int, size: int) -> Any:
    one = session("Deep", strategy={"workers": size}, optimizer={"name": "adam", "lr": 0.02}, train={"steps": 6})
    trained(rank, size, one, "it", disk=Quick(), until=lambda step: step >= 3)
    resumed = trained(rank, size, one, "it", disk=Quick()).parameters
    whole = trained(rank, size, one, "whole", disk=Quick()).parameters
    sizes = {file.name: file.stat().st_size for file in Checkpoints(Path("it").absolute()).path(6).iterdir()}
    return whole, resumed, sizes


def test_two_workers_write_as_much_as_each_other_and_resume_bit_for_bit(workers):
    for whole, resumed, sizes in workers(2, of_two):
        assert all(torch.equal(one, resumed[name]) for name, one in whole.items())
        assert "optimizer.pt" not in sizes
        first, second = sizes["optimizer-worker-0.pt"], sizes["optimizer-worker-1.pt"]
        assert 0 < first < second  # the first writes the weights, too
