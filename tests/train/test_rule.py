"""An update by slices is that of the whole network; and its state is what torch would have saved."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as some
from torch import Tensor, nn

from volary.errors import RunError
from volary.exchange.gradients.plan import in_memory_order, values_in
from volary.server.update_rule import SliceUpdate
from volary.session.train_section import Train
from volary.sharding.ranges import Range
from volary.train.optimizers import ROOM
from volary.train.schedules.constant import Constant
from volary.train.state.optimizer_state import OptimizerState
from volary.train.state.part_state import PartState
from volary.train.update.optimizer_rule import COUNTER, SliceOptimizer
from volary.train.update.precision import Precision
from volary.train.update.update import Update

RULES = [
    ("sgd", {}),
    ("sgd", {"momentum": 0.9, "weight_decay": 0.01}),
    ("sgd", {"momentum": 0.9, "dampening": 0.5}),
    ("adam", {"amsgrad": True, "weight_decay": 0.01}),
    ("adamw", {}),
    ("rmsprop", {"momentum": 0.9, "centered": True}),
    ("adagrad", {"lr_decay": 0.1, "initial_accumulator_value": 0.1}),
    ("adadelta", {}),
    ("adamax", {"weight_decay": 0.01}),
    ("asgd", {"lambd": 0.1, "t0": 5.0}),
    ("nadam", {"weight_decay": 0.01}),
    ("radam", {"decoupled_weight_decay": True, "weight_decay": 0.01}),
    ("rprop", {}),
    ("signum", {"weight_decay": 0.01}),
    ("conservative", {"steps": 2}),
    ("caffe_sgd", {"momentum": 0.9, "weight_decay": 0.01, "nesterov": True}),
]
every_rule = pytest.mark.parametrize(("name", "own"), RULES, ids=str)
shapes = some.lists(some.lists(some.integers(1, 5), max_size=3).map(tuple), min_size=1, max_size=4)


class Both:
    """The same parameters twice, one trained as a whole by torch and one by slices, bounded where `clip` says so."""

    def __init__(self, name: str, own: dict[str, Any], made: Sequence[Tensor], ends: Any, clip: float | None = None):
        self.plain = [nn.Parameter(one.clone()) for one in made]  # clone keeps the order in memory
        self.cut = [nn.Parameter(one.clone()) for one in made]
        self.build = ROOM.load(name)(**own).build
        self.rule = self.build(self.plain)
        self.gradients = [torch.zeros_like(one) for one in made]
        self.places = [(number, *place) for number, one in enumerate(made) for place in ends(one.numel())]
        self.clip = clip
        self.slices = self.slices_anew()

    def slices_anew(self) -> list[SliceOptimizer]:
        parts = [Range(str(number), start, end) for number, start, end in self.places]
        values = [values_in(part, self.cut[int(part.name)]) for part in parts]
        return [
            SliceOptimizer({part: one}, self.build, True, self.clip) for part, one in zip(parts, values, strict=True)
        ]

    def step(self, seed: int, unused: int | None = None, factor: float = 1.0) -> None:
        torch.manual_seed(seed)
        for number, (plain, gradient) in enumerate(zip(self.plain, self.gradients, strict=True)):
            gradient.copy_(torch.randn(gradient.shape))
            plain.grad = None if number == unused else gradient.clone()
            if plain.grad is not None and self.clip is not None:
                plain.grad.clamp_(-self.clip, self.clip)
        self.rule.step()
        for one, (number, start, end) in reversed(list(zip(self.slices, self.places, strict=True))):
            one.take([None if number == unused else in_memory_order(self.gradients[number])[start:end]])
            one.step(factor)

    def state(self) -> OptimizerState:
        return OptimizerState(part for one in self.slices for part in one.state())

    def restore(self, state: OptimizerState) -> None:
        for one in self.slices:
            one.restore(state)

    def gathered(self) -> dict[str, Any]:
        """As torch would save it: by an optimiser of all parameters, each whole."""
        whole = {Range(str(number), 0, one.numel()): one for number, one in enumerate(self.cut)}
        everything = SliceOptimizer(whole, self.build, True, None)
        everything.restore(OptimizerState.from_plain(self.state().plain()))
        return everything.optimizer.state_dict()

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
    same(both.gathered(), both.rule.state_dict())


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
    same(both.gathered(), both.rule.state_dict())


@every_rule
@pytest.mark.parametrize("steps", [0, 1, 5])
def test_what_was_saved_and_restored_goes_on_as_if_nothing_had_happened(name, own, steps):
    both = Both(name, own, of_every_kind(), halves)
    for step in range(steps):
        both.step(step, unused=1)
    before, state = both.gathered(), both.state()
    both.slices = both.slices_anew()
    both.restore(state)
    same(both.gathered(), before)
    for step in range(steps, steps + 5):
        both.step(step)
    both.are_equal()
    same(both.gathered(), both.rule.state_dict())


@every_rule
def test_a_state_goes_over_to_other_slices_and_back(name, own):
    both = Both(name, own, of_every_kind(), halves)
    for step in range(3):
        both.step(step)
    whole = Both(name, own, [one.detach() for one in both.cut], lambda numel: [(0, numel)])
    whole.restore(both.state())
    whole.rule.load_state_dict(both.gathered())
    for step in range(3, 6):
        whole.step(step)
        both.step(step)
    whole.are_equal()
    torch.testing.assert_close(whole.cut, both.plain, rtol=1e-5, atol=1e-6)
    both.restore(whole.state())
    same(both.gathered(), whole.rule.state_dict())


def test_a_state_of_whole_parameters_that_lies_in_another_order_in_memory_is_put_where_it_belongs():
    parameter, build = nn.Parameter(torch.ones(5, 7).t()), ROOM.load("adam")(lr=0.1).build
    one = SliceOptimizer({Range("it", 0, 35): parameter}, build, False, None)  # nobody says that it is elementwise
    one.take([torch.arange(35.0).view(5, 7).t()])
    one.step(1.0)
    (part,) = one.state()
    moved = {key: entry.contiguous() for key, entry in part.whole.items()}  # as it comes from another process
    one.restore(OptimizerState([PartState(Range("it", 0, 35), {}, moved)]))
    for key, entry in one.optimizer.state[parameter].items():
        assert torch.equal(entry, part.whole[key])
        assert key == COUNTER or entry.stride() == parameter.stride()


def test_a_state_keeps_nothing_of_the_live_one():
    both = Both("sgd", {"momentum": 0.9}, of_every_kind(), halves)
    both.step(0)
    saved = both.state()
    before = saved.of(Range("0", 0, 1000)).each["momentum_buffer"]
    both.restore(saved)
    both.step(1)
    assert torch.equal(saved.of(Range("0", 0, 1000)).each["momentum_buffer"], before)


def test_slices_that_are_made_of_others_go_on_in_their_memory_and_equal_one_update_of_all():
    build, made = ROOM.load("sgd")(momentum=0.9).build, [torch.ones(1000, 3), torch.ones(5)]
    updates = []
    for _ in range(2):
        named = [(str(number), nn.Parameter(one.clone())) for number, one in enumerate(made)]
        settings, precision = Train(steps=1), Precision("fp32", torch.device("cpu"))
        updates.append((Update(named, Constant(), settings, precision, 9, lambda _: build, True), dict(named)))
    (divided, cut), (whole, plain) = updates
    begun = {part[0]: part[3]["momentum_buffer"].untyped_storage().data_ptr() for part in divided.state()}
    for ends in ([0, 900, 3000], [0, 300, 600, 3000]):
        places = [[("0", *place)] for place in pairwise(ends)] + [[("1", 0, 5)]]
        parts = [[Range(*place) for place in one] for one in places]
        slices = [{part: values_in(part, cut[part.name]) for part in one} for one in parts]
        rule = divided.divide(slices)
        for number, one in enumerate(slices):
            sums = [torch.full((part.size,), 2.0) for part in one]
            rule.apply(number, list(one.values()), SliceUpdate(sums))
        for parameter in plain.values():
            parameter.grad = torch.full_like(parameter, 2.0)
        whole.apply()
        if len(ends) == 3:  # what is cut lies where it lay; only what is joined of two pieces moves
            lies = {part[3]["momentum_buffer"].untyped_storage().data_ptr() for part in divided.state()}
            assert lies == set(begun.values())
    assert all(torch.equal(cut[name], plain[name]) for name in cut)
    divided.join()
    for updated, parameters in ((divided, cut), (whole, plain)):  # all at once again, from the same momentum
        for parameter in parameters.values():
            parameter.grad = torch.full_like(parameter, 2.0)
        updated.apply()
    assert all(torch.equal(cut[name], plain[name]) for name in cut)


def test_a_state_of_some_of_the_values_alone_is_refused():
    both = Both("sgd", {"momentum": 0.9}, of_every_kind(), halves)
    both.step(0)
    with pytest.raises(RunError, match="covers some of the values 0 to 1000 of 0, and not all"):
        OptimizerState(part for one in both.slices[1:] for part in one.state()).of(Range("0", 0, 1000))


@pytest.mark.parametrize("in_place", [False, True])
def test_sums_are_scaled_before_they_are_bounded_and_only_written_to_where_they_may_be(in_place):
    values, gradient = torch.zeros(3), torch.tensor([1.0, -2.0, 4.0])
    one = SliceOptimizer({Range("it", 0, 3): values}, ROOM.load("sgd")(lr=1.0).build, True, 3.0)
    one.take([gradient], 2.0, in_place=in_place)
    one.step(0.5)
    assert values.tolist() == [-1.0, 1.5, -1.5]
    assert gradient.tolist() == ([2.0, -3.0, 3.0] if in_place else [1.0, -2.0, 4.0])


def test_the_rate_is_that_of_the_step_in_all_slices_and_of_every_group():
    both = Both("sgd", {"lr": 0.5}, of_every_kind(), halves)
    for step, factor in enumerate((1.0, 0.2)):
        both.rule.param_groups[0]["lr"] = 0.5 * factor
        both.step(step, factor=factor)
    both.are_equal()

    def two_rates(tensors: list[Tensor]) -> torch.optim.Optimizer:
        return torch.optim.SGD([{"params": tensors[:1], "lr": 1.0}, {"params": tensors[1:], "lr": 4.0}])

    parts = {Range(name, 0, 1): torch.zeros(1) for name in ("slow", "quick")}
    one = SliceOptimizer(parts, two_rates, True, None)
    one.take([torch.ones(1), torch.ones(1)])
    one.step(0.5)
    assert [values.item() for values in parts.values()] == [-0.5, -2.0]
