"""Layers hand over factors instead of gradients, and whatever else would reach their weights is refused."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn.functional import linear
from torch.utils.checkpoint import checkpoint

from exchange._factored import Factored, gradients
from volary.errors import SettingError
from volary.exchange.choice.rows import RowCounter
from volary.exchange.gradients import factor_hooks
from volary.exchange.gradients.factor_hooks import FactorHook, outer_layers
from volary.exchange.gradients.row_blocks import write_as_usual, write_in_place

IN, OUT = 6, 9


class One(nn.Module):
    """A layer that sends factors, one that does not, and how they are used: use(network, inputs)."""

    def __init__(self, use: Callable[[Any, Tensor], Tensor]) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.large, self.small = nn.Linear(IN, OUT), nn.Linear(OUT, IN)
        self.use = use
        self.double()

    def forward(self, inputs: Tensor) -> Tensor:
        return self.use(self, inputs)


def plainly(it: Any, inputs: Tensor) -> Tensor:
    return it.small(torch.tanh(it.large(inputs)))


def twice(it: Any, inputs: Tensor) -> Tensor:
    return it.large(it.small(torch.tanh(it.large(inputs))))


def recomputed(it: Any, inputs: Tensor) -> Tensor:
    return it.small(checkpoint(lambda x: torch.tanh(it.large(x)), inputs, use_reentrant=False))


def recomputed_reentrant(it: Any, inputs: Tensor) -> Tensor:
    return it.small(checkpoint(lambda x: torch.tanh(it.large(x)), inputs.requires_grad_(), use_reentrant=True))


def looked_into(it: Any, inputs: Tensor) -> Tensor:
    """With the slope of its output, of which it is not asked how the weights change it."""
    inputs = inputs.detach().requires_grad_()
    output = plainly(it, inputs)
    (slope,) = torch.autograd.grad(output.sum(), [inputs], retain_graph=True)
    return output * slope.norm()


def without_batch(it: Any, inputs: Tensor) -> Tensor:
    return plainly(it, inputs[0])


def in_three_dimensions(it: Any, inputs: Tensor) -> Tensor:
    return plainly(it, inputs.view(2, 2, IN))


def reused(it: Any, inputs: Tensor) -> Tensor:
    """The layer's input is overwritten once its backward is done."""
    own = inputs.clone()
    own.requires_grad_().register_hook(lambda _: own.data.zero_())
    return plainly(it, own)


USES = (plainly, twice, recomputed, recomputed_reentrant, looked_into, without_batch, in_three_dimensions, reused)


def inputs() -> Tensor:
    return torch.randn(4, IN, generator=torch.Generator().manual_seed(1), dtype=torch.float64)


def backward(module: nn.Module, passes: int = 1) -> None:
    for number in range(1, passes + 1):
        (module(inputs().to(module.small.weight.dtype)).square().sum() * number).backward()


@pytest.mark.parametrize("passes", [1, 2])
@pytest.mark.parametrize("use", USES)
def test_gradients_equal_autograd_s_in_every_step_however_the_layer_is_used(use, passes):
    module = One(use)
    plain = copy.deepcopy(module)
    it = Factored(module, ["large"], passes=passes)
    backward(plain, passes)
    wanted = gradients(plain)
    for _ in range(3):
        backward(module, passes)
        torch.testing.assert_close(it.gradients(), wanted)


def test_factors_leave_in_backward_the_moment_that_its_last_pass_is_through_with_the_layer():
    it = Factored(nn.Sequential(nn.Linear(2, 3), nn.Linear(3, 4)), ["1"], passes=2)
    first = it.buckets.all[0].chunks[0].index
    when: list[list[int]] = []
    it.module[0].register_full_backward_hook(lambda *_: when.append(list(it.left)))
    for _ in range(2):
        for _ in range(2):
            it.module(torch.ones(1, 2, requires_grad=True)).sum().backward()
        assert [first in left for left in when] == [False, True]
        when.clear()
        it.gradients()


def test_factors_leave_before_backward_computes_what_comes_behind_their_layer(monkeypatch):
    it = Factored(nn.Sequential(nn.Linear(2, 3), nn.Linear(3, 4)), ["1"])
    first, when, back = it.buckets.all[0].chunks[0].index, list[bool](), factor_hooks._Connected.back

    def watched_back(kind: Any, errors: Tensor, weight: Tensor) -> Tensor:
        when.append(first in it.left)
        return back(kind, errors, weight)

    monkeypatch.setattr(factor_hooks._Connected, "back", watched_back)
    for _ in range(2):
        it.module(torch.ones(1, 2)).sum().backward()
        it.gradients()
    kept = it.module(torch.ones(1, 2))  # a later pass may still come to it
    it.module(torch.ones(1, 2)).sum().backward()
    assert kept.grad_fn is not None
    assert when == [True, True, False]


@dataclass(frozen=True)
class Step:
    """made: how the network is used anew. asked: outputs of which the slope is asked for. learnt: those in the loss.

    kept: those that are there in the next step. Numbers are taken modulo how many outputs there are.
    """

    made: list[Callable[[Any, Tensor], Tensor]]
    asked: list[int]
    learnt: list[int]
    kept: set[int]


NUMBERS = st.integers(0, 5)
STEPS = st.builds(
    Step,
    made=st.lists(st.sampled_from([plainly, twice]), min_size=1, max_size=3),
    asked=st.lists(NUMBERS, max_size=2),
    learnt=st.lists(NUMBERS, min_size=1, max_size=3),
    kept=st.sets(NUMBERS, max_size=2),
)


@given(steps=st.lists(STEPS, min_size=1, max_size=4))
@settings(max_examples=30, deadline=None)
def test_gradients_equal_autograd_s_whatever_else_is_computed_asked_for_and_kept(steps):
    plain, module = One(plainly), One(plainly)
    it = Factored(module, ["large"])
    taken: list[list[Tensor]] = [[], []]
    values = inputs().requires_grad_()
    for step in steps:
        for net, outputs in zip((plain, module), taken, strict=True):
            for use in step.made:
                net.use = use
                outputs.append(net(values * 1))
            for number in step.asked:
                torch.autograd.grad(outputs[number % len(outputs)].sum(), [values], retain_graph=True)
            chosen = [outputs[number % len(outputs)] for number in step.learnt]
            torch.stack([one.square().sum() for one in chosen]).sum().backward(retain_graph=True)
            outputs[:] = [one for number, one in enumerate(outputs) if number in step.kept]
        torch.testing.assert_close(it.gradients(), gradients(plain))
        plain.zero_grad()


def test_a_large_layer_s_gradient_is_formed_row_block_by_row_block_in_one_parcel():
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(1500, 2000))  # 11.4 MiB: two blocks
    plain = copy.deepcopy(module)
    it = Factored(module, ["0"])
    it.buckets.form_one_by_one()
    values = torch.randn(5, 1500)
    module(values).square().sum().backward()
    plain(values).square().sum().backward()
    assert [chunk.parcel for chunk in it.buckets.chunks] == [0, 0, 0]
    assert it.left == [0]
    it.agree()
    formed: dict[str, list[Tensor]] = {"0.bias": [], "0.weight": []}
    for chunk in it.buckets.chunks:
        chunk.form()
        formed[chunk.slots[0].name] += [one.clone() for one in chunk.gradients]
    torch.testing.assert_close(torch.cat(formed["0.weight"]).view(2000, 1500), plain[0].weight.grad)
    torch.testing.assert_close(torch.cat(formed["0.bias"]), plain[0].bias.grad)
    places = {one.untyped_storage().data_ptr() for chunk in it.buckets.chunks for one in chunk.gradients}
    assert len(places) == 1, "each chunk where the one before was"


def beside(it: Any, inputs: Tensor) -> Tensor:
    return linear(it.small(torch.tanh(it.large(inputs))), it.large.weight)


def elsewhere(it: Any, inputs: Tensor) -> Tensor:
    return linear(inputs, it.large.weight).sum() + it.large.bias


def in_few_bits(it: Any, inputs: Tensor) -> Tensor:
    with torch.autocast("cpu", torch.bfloat16):
        return plainly(it, inputs.float()).float()


def watched(it: Any, inputs: Tensor) -> Tensor:
    if not it.large.weight._backward_hooks:
        it.large.weight.register_hook(lambda gradient: gradient * 2)
    return plainly(it, inputs)


def penalised(it: Any, inputs: Tensor) -> Tensor:
    inputs = inputs.detach().requires_grad_()
    output = plainly(it, inputs)
    (slope,) = torch.autograd.grad(output.sum(), [inputs], create_graph=True)
    return output + slope.square().sum()


@pytest.mark.parametrize("use", [beside, elsewhere, in_few_bits, watched, penalised])
@pytest.mark.parametrize("before", [0, 2])
def test_a_gradient_by_another_way_is_refused_in_the_step_in_which_it_comes_and_names_the_parameter(use, before):
    module = One(plainly).float() if use is in_few_bits else One(plainly)
    it = Factored(module, ["large"])
    for _ in range(before):
        backward(it.module)
        it.gradients()
    it.module.use = use
    with pytest.raises(SettingError, match=r"large.(weight|bias).*; accepted: another codec than factors for it"):
        backward(it.module)


def test_a_gradient_that_nobody_cleared_is_refused_and_one_of_zeros_is_none():
    it = Factored(One(plainly), ["large"])
    backward(it.module)
    it.agree()
    wanted = gradients(it.module)
    it.module.zero_grad(set_to_none=False)
    backward(it.module)
    it.agree()
    torch.testing.assert_close(gradients(it.module), wanted)
    backward(it.module)
    with pytest.raises(SettingError, match=r"large.bias has a gradient beside .* not cleared"):
        it.agree()


def test_a_second_gradient_in_one_step_is_refused_and_not_lost():
    it = Factored(One(plainly), ["large", "small"])
    backward(it.module)
    with pytest.raises(SettingError, match=r"small.bias got more than 1 gradients in a step"):
        backward(it.module)


def test_what_is_frozen_meanwhile_has_no_gradient():
    it = Factored(One(plainly), ["large"])
    it.module.large.bias.requires_grad_(requires_grad=False)
    backward(it.module)
    assert it.gradients().keys() == {"large.weight", "small.weight", "small.bias"}
    it.module.large.weight.requires_grad_(requires_grad=False)
    backward(it.module)
    assert it.gradients().keys() == {"small.weight", "small.bias"}


def test_without_gradients_the_layer_is_a_plain_one_and_so_is_a_copy():
    module = One(plainly)
    plain = copy.deepcopy(module)
    it = Factored(module, ["large"])
    assert isinstance(vars(module.large)["forward"], FactorHook)
    for other in (module, copy.deepcopy(module), pickle.loads(pickle.dumps(module))):
        with torch.no_grad():
            assert torch.equal(other(inputs()), plain(inputs()))
    backward(copy.deepcopy(module))
    assert it.left == [], "nothing of a copy enters the buckets"
    write_as_usual(it.changed)
    assert "forward" not in vars(module.large)


def test_what_sends_factors_is_not_written_in_place(monkeypatch):
    monkeypatch.setattr("volary.exchange.gradients.row_blocks.LARGE_BYTES", 1)
    it = Factored(One(plainly), ["large"])
    assert write_in_place(it.module, it.buckets) == [it.module.small]


class Own(nn.Linear):
    """Computes something else."""

    def forward(self, inputs: Tensor) -> Tensor:
        return super().forward(inputs) * 2


def tied() -> nn.Module:
    module = nn.Sequential(nn.Embedding(4, 3), nn.Linear(3, 4))
    module[1].weight = module[0].weight
    return module


def turned() -> nn.Module:
    layer = nn.Linear(3, 4)
    layer.weight = nn.Parameter(torch.zeros(3, 4).t())
    return nn.Sequential(layer)


OTHERS = {
    "tied": tied,
    "turned around": turned,
    "its own class": lambda: nn.Sequential(Own(3, 4)),
    "sparse": lambda: nn.Sequential(nn.Embedding(3, 4, sparse=True)),
    "with a norm": lambda: nn.Sequential(nn.Embedding(3, 4, max_norm=1.0)),
    "by frequency": lambda: nn.Sequential(nn.Embedding(3, 4, scale_grad_by_freq=True)),
    "3 x 3": lambda: nn.Sequential(nn.Conv2d(3, 4, 3)),
    "padded": lambda: nn.Sequential(nn.Conv2d(3, 4, 1, padding=1)),
    "stride 2": lambda: nn.Sequential(nn.Conv2d(3, 4, 1, stride=2)),
    "in groups": lambda: nn.Sequential(nn.Conv2d(4, 4, 1, groups=2)),
    "few bits": lambda: nn.Sequential(nn.Linear(3, 4, dtype=torch.bfloat16)),
    "complex": lambda: nn.Sequential(nn.Linear(3, 4, dtype=torch.complex64)),
}


@pytest.mark.parametrize("which", OTHERS)
def test_only_plain_layers_that_own_their_weight_hand_over_factors(which):
    module = OTHERS[which]()
    assert outer_layers(module) == []
    if "bits" not in which and which != "complex":
        with pytest.raises(
            SettingError, match=r"0.weight cannot travel as factors; accepted: the weight of one Linear"
        ):
            Factored(module, ["0"])


@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
@pytest.mark.parametrize("shape", [(2, 3, 4, 5), (3, 4, 5)])
def test_a_1_x_1_convolution_s_rows_are_the_places_of_its_images(layout, shape):
    torch.manual_seed(0)
    plain, module = (nn.Sequential(nn.Conv2d(3, 4, 1)).double() for _ in range(2))
    module.load_state_dict(plain.state_dict())
    module.to(memory_format=layout)
    it = Factored(module, ["0"])
    images = [torch.randn(shape, dtype=torch.float64, requires_grad=True)]
    images.append(images[0].detach().clone().requires_grad_())
    for net, image in zip((plain, module), images, strict=True):
        net(image).square().sum().backward()
    torch.testing.assert_close(it.gradients(), gradients(plain))
    torch.testing.assert_close(images[0].grad, images[1].grad)
    assert it.buckets.all[0].payload.rows.shape == (20 * (2 if len(shape) == 4 else 1), 3 + 4)


def test_embeddings_hand_over_the_rows_that_were_looked_up_without_padding():
    torch.manual_seed(0)
    plain = nn.Sequential(nn.Embedding(7, 3, padding_idx=2))
    module = copy.deepcopy(plain)
    it = Factored(module, ["0"])
    words = torch.tensor([[1, 1, 2], [6, 0, 2]], dtype=torch.int32)
    for net in (plain, module):
        net(words).square().sum().backward()
    torch.testing.assert_close(it.gradients(), gradients(plain))
    assert it.buckets.all[0].payload.rows.shape == (4, 3 + 1)


def test_rows_are_counted_of_layers_that_could_send_factors_while_they_are_trained():
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.table, self.mix = nn.Embedding(9, 512), nn.Conv2d(2, 3, 1)
            self.large, self.small, self.unused = nn.Linear(512, 512), nn.Linear(512, 4), nn.Linear(512, 512)

        def forward(self, words: Tensor, image: Tensor) -> Tensor:
            return self.small(self.large(self.large(self.table(words)))).sum() + self.mix(image).sum()

    module = Net()
    rows = RowCounter(module)
    words, image = torch.zeros(2, 5, dtype=torch.int64), torch.zeros(2, 2, 3, 4)
    with torch.no_grad():
        module(words, image)
    module(words, image)
    copy.deepcopy(module)(words, image)
    assert rows.seen() == {"table.weight": 10, "mix.weight": 24, "large.weight": 20, "unused.weight": 0}
    assert rows.seen() == {"table.weight": 0, "mix.weight": 0, "large.weight": 0, "unused.weight": 0}
    with torch.autocast("cpu", torch.bfloat16):
        module(words, image)
    assert rows.seen() == {"table.weight": 10, "mix.weight": 0, "large.weight": 0, "unused.weight": 0}
    rows.remove()
    module(words, image)
    assert not any(rows.seen().values())
