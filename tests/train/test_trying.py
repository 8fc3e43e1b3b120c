"""Trying a session measures its steps: the memory that a worker needs, with activations."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import nn

from volary.session import Session
from volary.train.trying import step_cost
from volary.train.trying import worker_memory as memories
from volary.train.trying.worker_memory import WorkerMemory, largest_batch, worker_memory

SHARE, WIDTH, HIDDEN, CLASSES = 300, 50, 40, 10
VALUE = 4


def network() -> nn.Module:
    return nn.Sequential(nn.Linear(WIDTH, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, CLASSES))


def test_activations_of_a_batch_are_those_that_autograd_keeps_without_parameters_and_each_once():
    module = network()

    def learn(samples: int) -> None:
        module(torch.randn(samples, WIDTH)).square().sum().backward()

    found = step_cost.step_cost(module, learn, SHARE, passes=3, workers_here=1)
    # inputs of both layers (the second's are what ReLU keeps), and the outputs, for their square
    assert found.activations_bytes == SHARE * VALUE * (WIDTH + HIDDEN + CLASSES)
    assert found.compute_s > 0


@pytest.mark.parametrize("share", [1, 2, 5])
def test_a_share_of_few_samples_is_measured_as_it_is(share):
    seen = []
    step_cost.step_cost(network(), seen.append, share, passes=1, workers_here=1)
    assert seen == [min(2, share), share]


def test_the_largest_batch_leaves_workers_what_does_not_grow_with_it(monkeypatch):
    memory = WorkerMemory(process=50, parameters=100, gradients=100, optimizer=0, codec=0, copy=0, activations=16)
    for left, largest in ((1600, 1600), (1617, 1600), (16.5, 16), (-1, 0)):
        monkeypatch.setattr(memories, "available_bytes", lambda left=left: 2 * (250 + left) / 0.75)
        assert largest_batch([memory], workers=2, batch_size=16) == largest
    monkeypatch.setattr(memories, "available_bytes", lambda: None)
    assert largest_batch([memory], workers=2, batch_size=16) is None


def memory_of(frozen=0, **strategy):
    layers = [{"linear": {"outputs": 1000}}, "relu", {"linear": {"outputs": 1000}}]
    session = Session(
        network={"layers": layers}, data={"source": "digits"}, optimizer="adam", strategy={"workers": 4, **strategy}
    )
    module = nn.Sequential(nn.Linear(1000, 1000, bias=False), nn.ReLU(), nn.Linear(1000, 1000, bias=False))
    for parameter in list(module.parameters())[:frozen]:
        parameter.requires_grad_(False)
    return worker_memory(session, module)


def test_shares_of_workers_take_less_by_level_and_beside_them_the_layer_that_is_computed():
    whole, layer = 2 * VALUE * 10**6, VALUE * 10**6
    found = {level: memory_of(partition={"name": "sharded", "level": level}) for level in (1, 2, 3)}
    plain = memory_of()
    assert (plain.parameters, plain.gradients, plain.optimizer, plain.copy) == (whole, whole, 2 * whole, 3 * whole)
    shared, computed = whole / 4, layer  # shares begin at multiples of 64 values
    assert [one.optimizer for one in found.values()] == pytest.approx([2 * shared] * 3, rel=1e-3)
    assert [one.gradients for one in found.values()] == pytest.approx([whole, *[shared + computed] * 2], rel=1e-3)
    assert [one.parameters for one in found.values()] == pytest.approx([whole, whole, shared + computed], rel=1e-3)
    assert found[3].copy == pytest.approx(3 * shared, rel=1e-3)


@pytest.mark.parametrize("level", [1, 3])
def test_copies_of_shares_are_of_what_is_trained_and_one_of_the_four_is_sent_in_each_step(level):
    partition = {"name": "sharded", "level": level}
    copied = memory_of(partition=partition, recover="memory")
    share = 3 * 2 * VALUE * 10**6 / 4  # Adam's two moments beside each value
    assert copied.copied == pytest.approx(share, rel=1e-3)
    assert copied.total - memory_of(partition=partition).total == copied.shares == 4 * copied.copied
    half = memory_of(partition=partition, recover="memory", frozen=1)
    assert half.copied == pytest.approx(share / 2, rel=1e-3)
    for none in (memory_of(recover="memory"), memory_of(partition=partition, recover="memory", workers=1)):
        assert (none.copied, none.shares) == (0, 0)


def test_advice_is_of_what_takes_most():
    plain = memory_of()
    assert plain.advice.startswith("strategy.partition=sharded, or an optimiser")
    much = replace(plain, activations=10**9)
    assert much.advice.startswith("a smaller data.batch_size")
    assert much.total == plain.total + 10**9
    assert "activations, which are not known, come on top" in str(plain)
    assert "954 activations" in str(much)
