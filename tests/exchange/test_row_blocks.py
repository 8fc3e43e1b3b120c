"""A large layer's gradient is written where it travels from, block by block; and when it is not."""

from __future__ import annotations

import copy
import pickle
import sys
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import linear
from torch.utils.checkpoint import checkpoint

from exchange._buckets_of import buckets_of, closed
from volary.errors import SettingError
from volary.exchange.gradients import row_blocks
from volary.exchange.gradients.buckets import Gradients
from volary.exchange.gradients.row_blocks import RowBlocks, write_as_usual, write_in_place

IN, OUT = 16, 20  # in blocks of 4 rows
BLOCKS = 5
CHUNK_MB = OUT // BLOCKS * IN * 4 / 2**20


@pytest.fixture(autouse=True)
def small_layers_count_as_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(row_blocks, "LARGE_BYTES", 1024)


class One(nn.Module):
    """One large layer, and how it is used. use: forward of it, from (network, inputs)."""

    def __init__(self, use: Callable[[Any, Tensor], Tensor], kind: torch.dtype = torch.float32) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.large = nn.Linear(IN, OUT, dtype=kind)
        self.small = nn.Linear(OUT, IN, dtype=kind)
        self.use = use

    def forward(self, inputs: Tensor) -> Tensor:
        return self.use(self, inputs)


def plainly(it: Any, inputs: Tensor) -> Tensor:
    return it.small(torch.tanh(it.large(inputs)))


def twice(it: Any, inputs: Tensor) -> Tensor:
    return it.large(it.small(torch.tanh(it.large(inputs))))


def beside(it: Any, inputs: Tensor) -> Tensor:
    """Used by another than its layer, too."""
    return linear(it.small(torch.tanh(it.large(inputs))), it.large.weight)


def elsewhere(it: Any, inputs: Tensor) -> Tensor:
    """Used by another than its layer only."""
    return linear(inputs, it.large.weight)


def recomputed(it: Any, inputs: Tensor) -> Tensor:
    return it.small(checkpoint(lambda x: torch.tanh(it.large(x)), inputs, use_reentrant=False))


def recomputed_reentrant(it: Any, inputs: Tensor) -> Tensor:
    return it.small(checkpoint(lambda x: torch.tanh(it.large(x)), inputs.requires_grad_(), use_reentrant=True))


def penalised(it: Any, inputs: Tensor) -> Tensor:
    """With the norm of the gradient of its output with respect to its inputs."""
    inputs = inputs.detach().requires_grad_()
    output = plainly(it, inputs)
    (slope,) = torch.autograd.grad(output.sum(), [inputs], create_graph=True)
    return output + slope.square().sum()


def looked_into(it: Any, inputs: Tensor) -> Tensor:
    """The same slope, not differentiated again."""
    inputs = inputs.detach().requires_grad_()
    output = plainly(it, inputs)
    (slope,) = torch.autograd.grad(output.sum(), [inputs], retain_graph=True)
    return output * slope.norm()


def in_few_bits(it: Any, inputs: Tensor) -> Tensor:
    with torch.autocast("cpu", torch.bfloat16):
        return plainly(it, inputs).float()


def without_batch(it: Any, inputs: Tensor) -> Tensor:
    return it.small(torch.tanh(it.large(inputs[0])))


def in_three_dimensions(it: Any, inputs: Tensor) -> Tensor:
    return plainly(it, inputs.view(2, 2, IN))


USES = (plainly, twice, beside, elsewhere, recomputed, recomputed_reentrant, penalised, looked_into, in_few_bits)
USES = (*USES, without_batch, in_three_dimensions)
EARLY = (plainly, without_batch, in_three_dimensions, recomputed_reentrant)  # blocks leave as they are written


class Trained:
    """A network whose large layer writes in place. left: chunks in the order in which they left."""

    def __init__(self, module: nn.Module, **more: Any) -> None:
        self.module, self.left = module, list[int]()
        self.buckets: Gradients = buckets_of(module, self.left, **{"chunk_mb": CHUNK_MB, **more})
        self.in_place = write_in_place(module, self.buckets)

    def backward(self, inputs: Tensor, *, last: bool = True, scale: float = 1.0, **how: Any) -> None:
        output = self.module(inputs)
        self.buckets.in_backward = last
        (output.sum() * scale).backward(**how)

    def step(self, inputs: Tensor, passes: int = 1, **how: Any) -> dict[str, Tensor]:
        """The agreed gradients of a step of one: its passes differ in a factor."""
        self.left.clear()
        self.module.zero_grad()
        for number in range(1, passes + 1):
            self.backward(inputs, last=number == passes, scale=number, **how)
        closed(self.buckets)
        return {name: p.grad.clone() for name, p in self.module.named_parameters() if p.grad is not None}


def expected(module: nn.Module, inputs: Tensor, passes: int = 1) -> dict[str, Tensor]:
    module.zero_grad()
    for number in range(1, passes + 1):
        (module(inputs).sum() * number).backward()
    return {name: p.grad.clone() for name, p in module.named_parameters() if p.grad is not None}


def inputs(rows: int = 4) -> Tensor:
    return torch.randn(rows, IN, generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize("passes", [1, 2])
@pytest.mark.parametrize("use", USES)
def test_gradients_equal_autograd_s_in_every_step_however_the_layer_is_used(use, passes):
    module = One(use)
    plain = copy.deepcopy(module)
    it = Trained(module, passes=passes)
    assert it.in_place == [module.large, module.small]
    for _ in range(3):
        found, wanted = it.step(inputs(), passes), expected(plain, inputs(), passes)
        assert found.keys() == wanted.keys()
        torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("use", USES)
def test_blocks_leave_as_they_are_written_once_the_layer_is_known_to_use_its_weight_alone(use):
    it = Trained(One(use))
    own = [chunk.index for chunk in it.buckets.slots[-1].chunks]
    assert len(own) == BLOCKS
    seen: list[list[int]] = []
    it.module.large.register_full_backward_hook(lambda *_: None)  # a module's own hooks change nothing
    slot = it.buckets.slots[-1]
    taken = it.buckets._take

    def note(one: Any) -> None:
        if one is slot:
            seen.append([number for number in it.left if number in own])
        taken(one)

    it.buckets._take = note  # type: ignore[method-assign]
    for _ in range(2):
        it.step(inputs().requires_grad_(), 1)
    assert seen == ([[], own] if use in EARLY else [[], []])


def test_a_step_of_several_passes_is_written_in_place_in_the_last():
    it = Trained(One(plainly), passes=2)
    for _ in range(2):
        it.step(inputs(), 2)
    assert it.buckets.slots[-1].alone


def test_a_gradient_that_has_a_weight_has_it_once():
    module = One(plainly)
    plain = copy.deepcopy(module)
    it = Trained(module, weight=lambda: 0.5)
    wanted = {name: 0.5 * gradient for name, gradient in expected(plain, inputs()).items()}
    for _ in range(3):
        torch.testing.assert_close(it.step(inputs()), wanted, rtol=1e-4, atol=1e-5)


def test_structure_may_change_from_step_to_step():
    module = One(plainly)
    plain = copy.deepcopy(module)
    it = Trained(module)
    for use in (plainly, twice, plainly, recomputed, penalised, plainly, in_few_bits, plainly):
        module.use = plain.use = use
        torch.testing.assert_close(it.step(inputs()), expected(plain, inputs()), rtol=1e-4, atol=1e-5)


def test_a_stack_that_is_looked_at_within_backward_is_no_use_outside_the_layer(monkeypatch):
    module, seen = One(plainly), []
    it, written = Trained(module), RowBlocks.written

    def looked_at(self: RowBlocks) -> Tensor:
        seen.append(sys._getframe(1))  # as by a worker that is asked what it is doing
        return written(self)

    it.step(inputs())
    it.step(inputs())  # from now on blocks leave as they are written
    monkeypatch.setattr(RowBlocks, "written", looked_at)
    found, wanted = it.step(inputs()), expected(copy.deepcopy(module), inputs())
    assert seen
    seen.clear()
    torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-5)


def test_a_use_outside_the_layer_that_begins_later_is_refused_and_not_lost():
    module = One(plainly)
    it = Trained(module)
    for _ in range(2):
        it.step(inputs())
    module.use = beside
    with pytest.raises(SettingError) as refused:
        it.step(inputs())
    assert str(refused.value) == (
        "large.weight was used outside its layer for the first time in this step; accepted: such a use from the first "
        "step on, or a parameter of its own"
    )


def doubled(gradient: Tensor) -> Tensor:
    return gradient * 2


def doubled_in_place(gradient: Tensor) -> None:
    gradient.mul_(2)


def doubled_when_accumulated(parameter: Tensor) -> None:
    assert parameter.grad is not None
    parameter.grad.mul_(2)


@pytest.mark.parametrize(
    ("hook", "from_step"),
    [(doubled, 0), (doubled, 2), (doubled_in_place, 0), (doubled_in_place, 2), (doubled_when_accumulated, 0)],
)
def test_hooks_on_the_weight_change_the_gradient_that_travels(hook, from_step):
    module = One(plainly)
    plain = copy.deepcopy(module)
    own = hook is doubled_when_accumulated
    if own:  # before the bucket's own, as torch calls them in their order
        module.large.weight.register_post_accumulate_grad_hook(hook)
    it = Trained(module)
    for step in range(4):
        if step == from_step and not own:
            module.large.weight.register_hook(hook)
        wanted = expected(plain, inputs())
        if step >= from_step:
            wanted["large.weight"] *= 2
        torch.testing.assert_close(it.step(inputs()), wanted, rtol=1e-4, atol=1e-5)


def test_a_backward_that_keeps_its_graph_is_computed_as_usual():
    module = One(plainly)
    plain = copy.deepcopy(module)
    it = Trained(module)
    with pytest.warns(UserWarning, match="create_graph=True"):
        found = it.step(inputs(), create_graph=True)
    torch.testing.assert_close(found, expected(plain, inputs()), rtol=1e-4, atol=1e-5)


def test_without_gradients_or_a_network_in_use_elsewhere_the_layer_is_a_plain_one():
    module = One(plainly)
    plain = copy.deepcopy(module)
    it = Trained(module)
    with torch.no_grad():
        assert torch.equal(module(inputs()), plain(inputs()))
    module(inputs())  # a forward whose result nobody wants
    wanted = expected(plain, inputs())
    torch.testing.assert_close(it.step(inputs()), wanted, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("how", ["deepcopy", "pickle"])
def test_a_copy_of_the_network_computes_as_usual(how):
    module = nn.Sequential(nn.Linear(IN, OUT))
    it = Trained(module)
    other = copy.deepcopy(module) if how == "deepcopy" else pickle.loads(pickle.dumps(module))
    with torch.no_grad():
        other[0].weight.zero_()
    assert not other(inputs()).sub(other[0].bias).any()
    other(inputs()).sum().backward()
    assert other[0].weight.grad is not None
    assert it.left == [], "nothing of it enters the buckets"


class Own(nn.Linear):
    """Computes something else."""

    def forward(self, inputs: Tensor) -> Tensor:
        return super().forward(inputs) * 2


def layers(which: str) -> nn.Module:
    module = nn.Sequential(nn.Linear(IN, OUT), nn.Linear(OUT, IN), nn.Linear(IN, OUT))
    if which == "shared with another layer":
        module[2].weight = module[0].weight
    elif which == "a class of its own":
        module[0] = module[2] = Own(IN, OUT)
    elif which == "small":
        module[0] = module[2] = nn.Linear(IN, 8)
    elif which == "frozen":
        module[0].weight.requires_grad_(requires_grad=False)
        module[2].weight.requires_grad_(requires_grad=False)
    elif which == "complex":
        module[0] = module[2] = nn.Linear(IN, OUT, dtype=torch.complex64)
    elif which == "turned around":
        module[0].weight = nn.Parameter(torch.zeros(IN, OUT).t())
        module[2].weight = nn.Parameter(torch.zeros(IN, OUT).t())
    elif which == "with a forward of the user's own":
        for layer in (module[0], module[2]):
            layer.forward = lambda inputs: inputs
    elif which == "parametrised":
        for layer in (module[0], module[2]):
            nn.utils.parametrizations.weight_norm(layer)
    return module


OTHERS = ["shared with another layer", "a class of its own", "small", "frozen", "complex", "turned around"]
OTHERS = [*OTHERS, "with a forward of the user's own", "parametrised"]


@pytest.mark.parametrize("which", OTHERS)
def test_only_large_plain_layers_that_own_their_weight_are_changed(which):
    module = layers(which)
    buckets = buckets_of(module)
    changed = write_in_place(module, buckets)
    assert changed == [module[1]]
    assert isinstance(vars(module[1])["forward"], RowBlocks)
    write_as_usual(changed)
    assert "forward" not in vars(module[1])


def convolved(layer: nn.Module, size: int = 4) -> tuple[nn.Module, Tensor]:
    """A network around a convolution, and samples for it."""
    torch.manual_seed(0)
    dimensions = layer.weight.dim() - 2
    module = nn.Sequential(layer, nn.Tanh())
    return module, torch.randn(3, layer.in_channels, *[size] * dimensions)


CONVOLUTIONS = {
    "1d": lambda: nn.Conv1d(8, 20, 3, padding=1, bias=False),
    "2d": lambda: nn.Conv2d(8, 20, 3, padding=1, bias=False),
    "2d with a bias, in steps of 2": lambda: nn.Conv2d(8, 20, (3, 2), stride=2, dilation=(1, 2)),
    "3d": lambda: nn.Conv3d(4, 20, 2, bias=False),
}
CONVOLVED_MB = 100 * 4 / 2**20  # a few rows a block


@pytest.mark.parametrize("passes", [1, 2])
@pytest.mark.parametrize("which", CONVOLUTIONS)
def test_a_large_convolution_s_gradients_equal_autograd_s(which, passes):
    module, samples = convolved(CONVOLUTIONS[which]())
    plain = copy.deepcopy(module)
    it = Trained(module, passes=passes, chunk_mb=CONVOLVED_MB)
    assert it.in_place == [module[0]]
    assert len(it.buckets.slots[-1].chunks) > 1
    for _ in range(3):
        torch.testing.assert_close(it.step(samples, passes), expected(plain, samples, passes), rtol=1e-4, atol=1e-5)


def test_a_convolution_s_blocks_leave_before_the_gradient_of_its_inputs_is_computed():
    module, samples = convolved(CONVOLUTIONS["2d"]())
    it = Trained(module, chunk_mb=CONVOLVED_MB)
    seen: list[list[int]] = []
    samples.requires_grad_().register_hook(lambda _: seen.append(list(it.left)))
    for _ in range(2):
        it.step(samples)
    assert seen[1] == [chunk.index for chunk in it.buckets.chunks]


class Penalised(nn.Module):
    """A convolution, with the norm of the gradient of its output with respect to its inputs."""

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, inputs: Tensor) -> Tensor:
        inputs = inputs.detach().requires_grad_()
        output = self.layer(inputs)
        (slope,) = torch.autograd.grad(output.square().sum(), [inputs], create_graph=True)
        return output + slope.square().sum()


@pytest.mark.parametrize("around", [nn.Sequential, Penalised])
def test_a_convolution_is_computed_as_usual_without_a_batch_and_where_its_graph_is_kept(around):
    inner, samples = convolved(CONVOLUTIONS["2d with a bias, in steps of 2"]())
    module = around(inner[0])
    plain = copy.deepcopy(module)
    it = Trained(module, chunk_mb=CONVOLVED_MB)
    for given in (samples[0], samples):
        torch.testing.assert_close(it.step(given), expected(plain, given), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    "layer",
    [
        nn.Conv2d(16, 16, 3, groups=2),
        nn.Conv2d(16, 16, 3, padding="same"),
        nn.Conv2d(16, 16, 3, padding=1, padding_mode="circular"),
        nn.ConvTranspose2d(16, 16, 3),
    ],
    ids=["of groups", "padded by name", "around", "transposed"],
)
def test_other_convolutions_stay_as_they_are(layer):
    assert write_in_place(nn.Sequential(layer), buckets_of(nn.Sequential(layer))) == []
