"""An update rule taken apart, chunk by chunk, is the same rule; and its state is what torch would have saved."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as some
from torch import Tensor, nn

from volary.exchange._plan import in_memory_order
from volary.train.optimizers import ROOM
from volary.train.pieces import Pieces, Portion

RULES = [
    ("sgd", {}),
    ("sgd", {"momentum": 0.9, "weight_decay": 0.01}),
    ("sgd", {"momentum": 0.9, "dampening": 0.5}),
    ("adam", {"amsgrad": True, "weight_decay": 0.01}),
    ("adamw", {}),
    ("rmsprop", {"momentum": 0.9, "centered": True}),
    ("adagrad", {"lr_decay": 0.1, "initial_accumulator_value": 0.1}),
    ("adadelta", {}),
]
every_rule = pytest.mark.parametrize(("name", "own"), RULES, ids=str)
shapes = some.lists(some.lists(some.integers(1, 5), max_size=3).map(tuple), min_size=1, max_size=4)


class Both:
    """The same parameters twice, one trained as a whole and one in chunks, bounded where `clip` says so."""

    def __init__(self, name: str, own: dict[str, Any], made: Sequence[Tensor], ends: Any, clip: float | None = None):
        self.plain = [nn.Parameter(one.clone()) for one in made]  # clone keeps the order in memory
        self.cut = [nn.Parameter(one.clone()) for one in made]
        self.build = ROOM.load(name)(**own).build
        self.rule = self.build(self.plain)
        self.gradients = [torch.zeros_like(one) for one in made]
        self.chunks = [
            [Portion(one, start, end, in_memory_order(gradient)[start:end])]
            for one, gradient in zip(self.cut, self.gradients, strict=True)
            for start, end in ends(one.numel())
        ]
        self.clip = clip
        self.pieces = self.pieces_anew()

    def pieces_anew(self) -> Pieces:
        return Pieces(self.chunks, self.build, self.build(self.cut), self.clip)

    def step(self, seed: int, unused: int | None = None) -> None:
        torch.manual_seed(seed)
        for number, (plain, gradient) in enumerate(zip(self.plain, self.gradients, strict=True)):
            gradient.copy_(torch.randn(gradient.shape))
            plain.grad = None if number == unused else gradient.clone()
            if plain.grad is not None and self.clip is not None:
                plain.grad.clamp_(-self.clip, self.clip)
        self.rule.step()
        for number, chunk in reversed(list(enumerate(self.chunks))):
            self.pieces.apply(number, [portion.parameter is not self.cut_at(unused) for portion in chunk])

    def cut_at(self, number: int | None) -> Tensor | None:
        return None if number is None else self.cut[number]

    def are_equal(self) -> None:
        torch.testing.assert_close(self.cut, self.plain, rtol=1e-5, atol=1e-6)


def halves(numel: int) -> list[tuple[int, int]]:
    bounds = sorted({0, numel // 3, numel})
    return list(pairwise(bounds))


def of_every_kind() -> list[Tensor]:
    torch.manual_seed(0)
    pictures = torch.randn(4, 3, 2, 2).to(memory_format=torch.channels_last)
    return [torch.randn(50, 20), torch.randn(()), torch.randn(1), pictures, torch.randn(5, 7).t(), torch.randn(1, 3)]


def same(state: Any, other: Any) -> None:
    """Both are of the same form, with the same values to rounding."""
    assert state.keys() == other.keys()
    for key, value in state.items():
        if isinstance(value, dict):
            same(value, other[key])
        elif isinstance(value, Tensor):
            assert (value.dtype, value.shape) == (other[key].dtype, other[key].shape)
            torch.testing.assert_close(value, other[key], rtol=1e-5, atol=1e-6)
        else:
            assert value == other[key]


@every_rule
@pytest.mark.parametrize("clip", [None, 0.5])
def test_ten_steps_equal_those_of_the_whole_rule_and_so_does_the_state(name, own, clip):
    both = Both(name, own, of_every_kind(), halves, clip)
    for step in range(10):
        both.step(step, unused=3 if step % 4 else None)
    both.are_equal()
    same(both.pieces.gather(), both.rule.state_dict())


@settings(max_examples=15)
@given(some.sampled_from(RULES), shapes, some.data())
def test_any_shapes_cut_anywhere_come_to_the_state_of_the_whole_rule(rule, found, data):
    def ends(numel: int) -> list[tuple[int, int]]:
        bounds = sorted({0, numel, *data.draw(some.lists(some.integers(0, numel), max_size=3))})
        return list(pairwise(bounds))

    both = Both(*rule, [torch.ones(shape) for shape in found], ends)
    for step in range(3):
        both.step(step)
    both.are_equal()
    same(both.pieces.gather(), both.rule.state_dict())


@every_rule
@pytest.mark.parametrize("steps", [0, 1, 5])
def test_what_was_gathered_and_scattered_again_goes_on_as_if_nothing_had_happened(name, own, steps):
    both = Both(name, own, of_every_kind(), halves)
    for step in range(steps):
        both.step(step, unused=1)
    gathered = both.pieces.gather()
    both.pieces = both.pieces_anew()
    both.pieces.scatter(gathered)
    same(both.pieces.gather(), gathered)
    for step in range(steps, steps + 5):
        both.step(step)
    both.are_equal()
    same(both.pieces.gather(), both.rule.state_dict())


@every_rule
def test_a_state_goes_over_to_other_chunks_and_to_the_whole_rule_and_back(name, own):
    both = Both(name, own, of_every_kind(), halves)
    for step in range(3):
        both.step(step)
    in_other_chunks = Both(name, own, [one.detach() for one in both.cut], lambda numel: [(0, numel)])
    in_other_chunks.pieces.scatter(both.pieces.gather())
    in_other_chunks.rule.load_state_dict(both.pieces.gather())
    for step in range(3, 6):
        in_other_chunks.step(step)
        both.step(step)
    in_other_chunks.are_equal()
    torch.testing.assert_close(in_other_chunks.cut, both.plain, rtol=1e-5, atol=1e-6)
    both.pieces.scatter(in_other_chunks.rule.state_dict())
    same(both.pieces.gather(), in_other_chunks.rule.state_dict())


def test_a_state_that_lies_in_another_order_in_memory_is_put_where_it_belongs():
    both = Both("adam", {}, of_every_kind(), halves)
    both.step(0)
    state = both.pieces.gather()
    for entries in state["state"].values():
        for key, value in entries.items():
            entries[key] = value.contiguous()  # as it comes from another process
    both.pieces.scatter(state)
    both.step(1)
    both.are_equal()


def test_gathering_keeps_nothing_of_the_live_state():
    both = Both("sgd", {"momentum": 0.9}, of_every_kind(), halves)
    both.step(0)
    gathered = both.pieces.gather()
    before = gathered["state"][0]["momentum_buffer"].clone()
    both.step(1)
    assert torch.equal(gathered["state"][0]["momentum_buffer"], before)


def test_the_rate_is_that_of_the_step_in_all_chunks():
    both = Both("sgd", {}, of_every_kind(), halves)
    for step, rate in enumerate((0.5, 0.1)):
        both.rule.param_groups[0]["lr"] = rate
        both.pieces.set_lr([rate])
        both.step(step)
    both.are_equal()
