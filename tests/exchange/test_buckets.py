"""Buckets: what travels together, when it leaves, and that torch finds the gradients where it looks for them."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from volary.errors import SettingError
from volary.exchange._base import Memory
from volary.exchange._buckets import Bucket, Buckets, Plan, Slot, plan


def buckets_of(module: nn.Module, left: list[int] | None = None, **more: Any) -> Buckets:
    settings: dict[str, Any] = {"passes": 1, "weight": lambda: 1.0, **more}
    size_mb = settings.pop("bucket_mb", 1e-6)

    def leave(bucket: Bucket) -> None:
        if left is not None:
            left.append(bucket.index)

    named = list(module.named_parameters())
    plans = plan([(name, p) for name, p in named if p.requires_grad], size_mb, extra=2)
    buckets = [Bucket(index, one, memory_of(one), private=False) for index, one in enumerate(plans)]
    return Buckets(buckets, [(name, p) for name, p in named if not p.requires_grad], ready=leave, **settings)


def memory_of(one: Plan) -> Memory:
    flat = torch.zeros(one.shape.numel, dtype=one.dtype)
    return Memory(flat, flat)


def closed(buckets: Buckets) -> list[Slot]:
    """Ends a step as a world of one would: what was contributed is what was agreed."""
    missing = buckets.close()
    buckets.deliver()
    return missing


@pytest.fixture
def module() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2))


def backward(module: nn.Module) -> None:
    module(torch.ones(2, 3)).sum().backward()


def test_buckets_leave_during_backward_in_order_and_the_last_waits_for_the_votes(module):
    left: list[int] = []
    buckets = buckets_of(module, left)
    assert [slot.name for slot in buckets.slots] == ["2.bias", "2.weight", "0.bias", "0.weight"]
    for _ in range(2):
        left.clear()
        backward(module)
        assert left == [0, 1, 2]
        assert closed(buckets) == []
        buckets.depart()
        assert left == [0, 1, 2, 3]
        buckets.open()


def test_a_bucket_waits_for_one_before_it_whose_gradients_have_not_come(module):
    left: list[int] = []
    buckets = buckets_of(module, left)
    module[0](torch.ones(2, 3)).sum().backward()
    assert left == []
    assert [slot.name for slot in closed(buckets)] == ["2.bias", "2.weight"]
    buckets.depart()
    assert left == [0, 1, 2, 3]
    assert not buckets.all[0].contribution.any(), "what is missing counts as zero"


def test_a_size_closes_a_bucket_and_another_type_begins_one():
    module = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 8).double(), nn.Linear(8, 8))
    whole = buckets_of(module, bucket_mb=25)
    assert [bucket.contribution.dtype for bucket in whole.all] == [torch.float32, torch.float64, torch.float32]
    assert [len(bucket.slots) for bucket in whole.all] == [2, 2, 2]
    assert [bucket.extra.numel() for bucket in whole.all] == [0, 0, 2]
    in_doubles = buckets_of(nn.Linear(8, 8).double())
    assert [(bucket.contribution.dtype, len(bucket.slots)) for bucket in in_doubles.all][-1] == (torch.float32, 0)


@pytest.mark.parametrize("passes", [1, 3])
def test_gradients_of_all_passes_are_summed_each_with_the_weight_of_its_own(module, passes):
    weights = iter([0.5, 0.25, 2.0])
    now = [1.0]
    buckets = buckets_of(module, passes=passes, weight=lambda: now[0])
    expected = torch.zeros(4, 3)
    for _ in range(passes):
        now[0] = next(weights)
        inputs = torch.randn(2, 3)
        (gradient,) = torch.autograd.grad(module(inputs).sum(), [module[0].weight])
        expected += now[0] * gradient
        module(inputs).sum().backward()
    assert closed(buckets) == []
    torch.testing.assert_close(module[0].weight.grad, expected)
    assert (
        module[0].weight.grad.untyped_storage().data_ptr() == buckets.all[-1].contribution.untyped_storage().data_ptr()
    )


def test_fewer_passes_than_announced_count_what_there_is(module):
    buckets = buckets_of(module, passes=3)
    backward(module)
    expected = torch.full((2,), 2.0)
    assert closed(buckets) == []
    assert torch.equal(module[2].bias.grad, expected)


def test_a_gradient_that_was_left_from_the_last_step_counts_as_on_one_device(module):
    buckets = buckets_of(module)
    backward(module)
    closed(buckets)
    buckets.open()
    before = module[2].bias.grad.clone()
    assert closed(buckets) == []
    assert torch.equal(module[2].bias.grad, before)


RULES = {
    "sgd": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, fused=True),
    "adam": lambda p: torch.optim.Adam(p, lr=0.1, fused=True),
    "adagrad": lambda p: torch.optim.Adagrad(p, lr=0.1, fused=True),
}


@pytest.mark.parametrize("name", RULES)
def test_fused_updates_see_each_gradient_in_the_order_of_its_parameter(name):
    torch.manual_seed(0)
    plain, held = nn.Conv2d(3, 4, 2), nn.Conv2d(3, 4, 2)
    held.load_state_dict(plain.state_dict())
    held.to(memory_format=torch.channels_last)
    buckets, inputs = buckets_of(held), torch.randn(2, 3, 5, 5)
    rules = [RULES[name](module.parameters()) for module in (plain, held)]
    for _ in range(3):
        for module, rule in zip((plain, held), rules, strict=True):
            rule.zero_grad()
            module(inputs).square().sum().backward()
            if module is held:
                closed(buckets)
                buckets.open()
            rule.step()
    torch.testing.assert_close(held.weight, plain.weight)


def test_sparse_gradients_travel_dense():
    module = nn.Embedding(5, 2, sparse=True)
    buckets = buckets_of(module)
    module(torch.tensor([1, 1, 3])).sum().backward()
    assert closed(buckets) == []
    assert module.weight.grad.tolist() == [[0, 0], [2, 2], [0, 0], [1, 1], [0, 0]]


def test_a_parameter_unfrozen_meanwhile_is_refused_and_one_frozen_meanwhile_is_missing(module):
    module[0].requires_grad_(requires_grad=False)
    buckets = buckets_of(module)
    module[2].requires_grad_(requires_grad=False)
    assert [slot.name for slot in closed(buckets)] == ["2.bias", "2.weight"]
    module[0].requires_grad_(requires_grad=True)
    with pytest.raises(SettingError, match=r"0.weight was frozen when training began"):
        closed(buckets)


def test_a_second_gradient_in_one_step_is_refused_and_not_lost():
    layer = nn.Linear(2, 2)
    buckets = buckets_of(layer)
    hidden = torch.ones(1, 2, requires_grad=True)
    for _ in range(2):
        hidden = checkpoint(layer, hidden, use_reentrant=True)
    with pytest.raises(SettingError, match=r"more than 1 gradients in a step.*use_reentrant=False"):
        hidden.sum().backward()
    buckets.remove()
    layer.zero_grad()
    buckets = buckets_of(layer)
    hidden = torch.ones(1, 2)
    for _ in range(2):
        hidden = checkpoint(layer, hidden, use_reentrant=False)
    hidden.sum().backward()
    assert closed(buckets) == []


def test_removed_buckets_let_go_of_the_parameters(module):
    left: list[int] = []
    buckets_of(module, left).remove()
    backward(module)
    assert left == []
    assert module[0].weight.grad is not None
