"""Buckets: what travels together, when it leaves, and that torch finds the gradients where it looks for them."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from exchange._buckets_of import apart, buckets_of, closed
from volary.errors import SettingError


@pytest.fixture
def module() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2))


def backward(module: nn.Module) -> None:
    module(torch.ones(2, 3)).sum().backward()


def test_chunks_leave_during_backward_the_moment_their_gradients_exist(module):
    left: list[int] = []
    buckets = buckets_of(module, left)
    assert [slot.name for slot in buckets.slots] == ["2.bias", "2.weight", "0.bias", "0.weight"]
    when: list[list[int]] = []
    module[1].register_full_backward_hook(lambda *_: when.append(list(left)))
    for _ in range(2):
        left.clear()
        when.clear()
        backward(module)
        assert left == [0, 1, 2, 3]
        assert when == [[0, 1]]
        assert closed(buckets) == []
        assert left == [0, 1, 2, 3], "each once"


def test_what_has_no_gradient_leaves_at_the_end_as_zeros_and_as_unused(module):
    left: list[int] = []
    buckets = buckets_of(module, left)
    backward(module)
    closed(buckets)
    module.zero_grad()
    left.clear()
    module[0](torch.ones(2, 3)).sum().backward()
    assert left == [2, 3]
    assert [slot.name for slot in closed(buckets)] == ["2.bias", "2.weight"]
    assert left == [2, 3, 0, 1]
    assert not buckets.all[0].contribution.any(), "what is missing counts as zero"
    assert [slot.users for slot in buckets.slots] == [0, 0, 1, 1]
    assert module[2].weight.grad is None, "as on one device: neither momentum nor decay touches it"
    assert module[0].weight.grad is not None


def test_what_was_agreed_on_stays_with_parameters_while_another_step_is_forgotten(module):
    buckets = buckets_of(module, bucket_mb=25, memory=apart)
    backward(module)
    closed(buckets)
    agreed = [one.grad for one in module.parameters()]
    other = buckets_of(module)  # of the group that follows, and leaves its first step out
    other.forget()
    assert all(one.grad is gradient for one, gradient in zip(module.parameters(), agreed, strict=True))
    buckets.remove()
    module.zero_grad()
    backward(module)
    other.forget()
    module.zero_grad()
    backward(module)
    expected = [gradient.clone() for gradient in agreed]
    closed(other)
    torch.testing.assert_close([one.grad for one in module.parameters()], expected)


def test_a_chunk_of_several_parameters_leaves_with_the_last_of_them(module):
    left: list[int] = []
    buckets = buckets_of(module, left, bucket_mb=25)
    assert [[slot.name for slot in chunk.slots] for chunk in buckets.chunks] == [
        ["2.bias", "2.weight", "0.bias", "0.weight"]
    ]
    module[0](torch.ones(2, 3)).sum().backward()
    assert left == []
    assert [slot.name for slot in closed(buckets)] == ["2.bias", "2.weight"]
    assert left == [0]
    assert [slot.users for slot in buckets.slots] == [0, 0, 1, 1]


@pytest.mark.parametrize("passes", [1, 3])
@pytest.mark.parametrize("private", [True, False])
def test_gradients_of_all_passes_are_summed_each_with_the_weight_of_its_own(module, passes, private):
    weights = iter([0.5, 0.25, 2.0])
    now = [1.0]
    buckets = buckets_of(module, passes=passes, weight=lambda: now[0], private=private, memory=apart)
    expected = torch.zeros(4, 3)
    for _ in range(passes):
        now[0] = next(weights)
        inputs = torch.randn(2, 3)
        (gradient,) = torch.autograd.grad(module(inputs).sum(), [module[0].weight])
        expected += now[0] * gradient
        module(inputs).sum().backward()
    assert closed(buckets) == []
    torch.testing.assert_close(module[0].weight.grad, expected)
    # what others read too may not be changed in place, by clipping say
    bucket = buckets.all[-1]
    place = bucket.contribution if private else bucket.agreed
    assert module[0].weight.grad.untyped_storage().data_ptr() == place.untyped_storage().data_ptr()
    torch.testing.assert_close(buckets.slots[-1].agreed, expected, msg="what was agreed is where it was agreed")


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
    before = module[2].bias.grad.clone()
    assert closed(buckets) == []
    assert torch.equal(module[2].bias.grad, before)


def test_a_gradient_that_autograd_adds_in_the_bucket_itself_has_its_weight_too(module):
    buckets = buckets_of(module, weight=lambda: 0.5)
    backward(module)
    closed(buckets)
    for parameter in module.parameters():
        parameter.grad.zero_()  # as zero_grad(set_to_none=False) does: what comes next is added in place
    backward(module)
    closed(buckets)
    assert module[2].bias.grad.tolist() == [1.0, 1.0]


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
            rule.step()
    torch.testing.assert_close(held.weight, plain.weight)


def test_sparse_gradients_travel_dense():
    module = nn.Embedding(5, 2, sparse=True)
    buckets = buckets_of(module)
    module(torch.tensor([1, 1, 3])).sum().backward()
    assert closed(buckets) == []
    assert module.weight.grad.tolist() == [[0, 0], [2, 2], [0, 0], [1, 1], [0, 0]]


@pytest.mark.parametrize("kind", [torch.float16, torch.bfloat16, torch.float64, torch.complex64])
def test_who_used_what_is_counted_in_any_type(kind):
    module = nn.ParameterList(nn.Parameter(torch.ones(3, dtype=kind)) for _ in range(2))
    buckets = buckets_of(module, bucket_mb=1)
    (module[1] * 2).sum().abs().backward()
    assert [slot.name for slot in closed(buckets)] == ["0"]
    assert [(slot.name, slot.users) for slot in buckets.slots] == [("1", 1), ("0", 0)]


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


@pytest.mark.parametrize("passes", [1, 3])
@pytest.mark.parametrize("weight", [1.0, 0.3, 0.0])
def test_small_gradients_that_enter_together_have_the_bits_of_those_that_enter_one_by_one(
    module, passes, weight, monkeypatch
):
    monkeypatch.setattr("volary.exchange.gradients.buckets.MOST_TOGETHER", 3)
    batches = torch.randn(passes, 2, 3)
    found = []
    for small_bytes in (2**14, -1):
        monkeypatch.setattr("volary.exchange.gradients.buckets.SMALL_BYTES", small_bytes)
        buckets = buckets_of(module, passes=passes, weight=lambda: weight, bucket_mb=25)
        for bucket in buckets.all:
            bucket.contribution.fill_(9.0)  # of the step before
        for batch in batches:
            module(batch).square().sum().backward()
            assert [parameter.grad for parameter in module.parameters()] == [None] * 4
        assert closed(buckets) == []
        found.append([slot.agreed.clone() for slot in buckets.slots])
        assert any(gradient.any() for gradient in found[-1]) == (weight > 0)
        buckets.remove()
        module.zero_grad()
    for together, one_by_one in zip(*found, strict=True):
        assert torch.equal(together, one_by_one)


def test_a_small_gradient_that_is_not_a_number_leaves_nothing_where_nothing_counts(module):
    buckets = buckets_of(module, weight=lambda: 0.0, bucket_mb=25)
    (module(torch.ones(2, 3)).sum() * torch.nan).backward()
    closed(buckets)
    assert not any(slot.agreed.any() for slot in buckets.slots)
