"""`strategy.balance: auto`: shares follow speed, training stays what one device does, a resumed run has the shares."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import nn

from train._training import OVERLAPPED, Trained, looked_at, made, session, started, trained
from volary.session import Session
from volary.train.loop import train

BATCH, SLOWER = 24, 12  # times as much compute for each sample
AUTO = {"balance": "auto"}


def balanced(steps: int = 60, network: str = "Exact", **strategy: Any) -> Session:
    """A session on 100 points, with a last batch of 4 in each epoch."""
    source = {"name": "points", "samples": 100}
    return session(network, source=source, batch_size=BATCH, train={"steps": steps}, strategy=strategy)


def working(module: nn.Module, times: int) -> None:
    """Let each sample take so many products of matrices more."""
    matrix = torch.randn(96, 96)

    def work(_: nn.Module, inputs: tuple[torch.Tensor]) -> None:
        for _ in range(times * len(inputs[0])):
            torch.mm(matrix, matrix)

    module.register_forward_pre_hook(work)


def one_is_slower(rank: int, world_size: int, strategy: dict[str, Any]) -> Trained:
    """Train until some steps after shares have changed."""

    def ending(step: int) -> bool:
        changed = [one["step"] for one in it.recorder.events if one.get("event") == "balanced"]
        return bool(changed) and step > changed[0] + 5

    it = made(rank, world_size, replace_workers(balanced(5000, **strategy), world_size), until=ending)
    working(it.flow.module, SLOWER if rank == world_size - 1 else 1)
    with started(it):
        return looked_at(it, train(it))


def replace_workers(of: Session, workers: int) -> Session:
    return replace(of, strategy=replace(of.strategy, workers=workers))


def with_sizes(rank: int, world_size: int, of: Session, sizes: list[int]) -> Trained:
    """Train with these shares from the first step on."""
    it = made(rank, world_size, replace_workers(of, world_size))
    it.coordinator.rank.data.balance.restore({"sizes": sizes})
    with started(it):
        return looked_at(it, train(it))


def close(parameters: dict[str, torch.Tensor], others: dict[str, torch.Tensor]) -> None:
    for name, parameter in parameters.items():
        torch.testing.assert_close(parameter, others[name], rtol=0, atol=1e-9)


@pytest.mark.parametrize("strategy", [AUTO, {**AUTO, **OVERLAPPED}])
def test_a_worker_that_computes_more_for_each_sample_gets_fewer_and_the_result_is_that_of_one_device(workers, strategy):
    first, slower = workers(2, one_is_slower, strategy)
    alone = trained(0, 1, balanced(len(first.rows)))
    close(first.parameters, alone.parameters)
    close(slower.parameters, alone.parameters)
    told = first.events("balanced")
    assert told[0]["was"] == [12, 12] and not slower.events("balanced")
    assert sum(told[0]["samples"]) == BATCH and 2 <= told[0]["samples"][1] < 12
    by_step = [(one.samples, other.samples) for one, other in zip(first.rows, slower.rows, strict=True)]
    assert [sum(each) for each in by_step] == [4 if step % 5 == 4 else BATCH for step in range(len(by_step))]
    assert by_step[0] == (12, 12) and tuple(told[-1]["samples"]) in by_step[-6:]


@pytest.mark.parametrize(
    ("more", "sizes"),
    [
        ({}, [20, 3, 1]),
        ({"codec": "none", "exchange": {"name": "allreduce", "route": "ring"}}, [2, 2, 20]),
        (
            {"partition": {"name": "sharded", "level": 2}, "exchange": {"name": "allreduce", "route": "ring"}},
            [4, 9, 11],
        ),
        ({"exchange": {"name": "allreduce", "route": "torch"}}, [8, 15, 1]),
    ],
)
def test_any_shares_learn_what_one_device_learns(workers, more, sizes):
    alone = trained(0, 1, balanced(20))
    for one in workers(3, with_sizes, balanced(20, **AUTO, **more, workers=3), sizes):
        close(one.parameters, alone.parameters)
        assert one.rows[0].samples in sizes


def stopped_and_resumed(rank: int, world_size: int, sizes: list[int]) -> list[Any]:
    """A run whose shares have sizes, one that is stopped after 6 steps and resumed, and what that begins with."""
    of = replace_workers(balanced(12, "Dropping", **AUTO), world_size)
    whole = with_sizes(rank, world_size, of, sizes)
    it = made(rank, world_size, of, "stopped", until=lambda step: step == 6)
    it.coordinator.rank.data.balance.restore({"sizes": sizes})
    with started(it):
        assert train(it) == "stopped"
    it = made(rank, world_size, of, "stopped")
    it.coordinator.saver.resume()
    began = it.coordinator.rank.data.balance.state()["sizes"]
    with started(it):
        return [whole, looked_at(it, train(it)), began]


def resumed_as(rank: int, world_size: int) -> list[int]:
    """The shares of a run that goes on from `stopped` with another number of workers."""
    it = made(rank, world_size, replace_workers(balanced(14, "Dropping", **AUTO), world_size), "../1/stopped")
    it.coordinator.saver.resume()
    with started(it):
        train(it)
    return [row.samples for row in it.recorder.rows]


def test_a_resumed_run_goes_on_with_its_shares_bit_for_bit(workers):
    for whole, resumed, began in workers(2, stopped_and_resumed, [20, 4]):
        assert began == [20, 4]
        assert all(torch.equal(resumed.parameters[name], one) for name, one in whole.parameters.items())
    shares = workers(3, resumed_as)
    assert [each[0] for each in shares] == [8, 8, 8]  # with another number of workers they are equal at first
