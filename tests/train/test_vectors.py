"""L-BFGS of vectors that are cut over servers, against torch's of whole ones: the coordinator sees products alone."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import msgspec
import pytest
import torch
from torch import Tensor

from volary.server.batch_methods.inner_products import InnerProducts
from volary.server.batch_methods.lbfgs import LbfgsCoordinator, LbfgsSettings, LbfgsState
from volary.server.protocol.vectors import GRADIENT, PARAMETERS, Asked, Combine, FoundProducts, joined
from volary.server.update_rule import SliceUpdate
from volary.sharding.ranges import Range
from volary.train.served.server.vector_rule import VectorRule
from volary.train.state.optimizer_state import OptimizerState

Loss = Callable[[Tensor], Tensor]


def rosenbrock(x: Tensor) -> Tensor:
    return (100 * (x[1:] - x[:-1] ** 2) ** 2 + (1 - x[:-1]) ** 2).sum()


def softmax(x: Tensor) -> Tensor:
    draws = torch.Generator().manual_seed(0)
    inputs = torch.randn(40, 6, generator=draws, dtype=x.dtype)
    targets = torch.randint(3, (40,), generator=draws)
    return torch.nn.functional.cross_entropy(inputs @ x.view(6, 3), targets) + 1e-3 * x.square().sum()


def steep(x: Tensor) -> Tensor:
    """Where a step of 1 is far too long, and one of 10 too short: searches bracket, extrapolate and zoom."""
    return (torch.cosh(x * torch.linspace(0.1, 6, len(x), dtype=x.dtype)) + 0.3 * torch.sin(5 * x)).sum()


class Cut:
    """Vectors that servers have slice by slice. saved: in a checkpoint, whatever its slices were."""

    def __init__(
        self, values: Tensor, slices: int, settings: LbfgsSettings, saved: tuple[bytes, OptimizerState] | None = None
    ) -> None:
        self.values = values.clone()
        bounds = [len(values) * one // slices for one in range(slices + 1)]
        self.parts = [Range("x", *one) for one in pairwise(bounds)]
        self.rule = VectorRule({n: [part] for n, part in enumerate(self.parts)}, lambda _: 0.5, None)
        self.method = LbfgsCoordinator(settings, msgspec.json.decode(saved[0], type=LbfgsState) if saved else None)
        for number in range(slices) if saved else ():
            self.rule.restore(number, saved[1])
        self.losses: list[float] = []

    def update(self, loss: Loss) -> None:
        """An update: a loss and a gradient with the parameters as they are."""
        x = self.values.clone().requires_grad_()
        value = loss(x)
        (gradient,) = torch.autograd.grad(value, x)
        self.losses.append(value.item())
        asks = self.method.asks
        updates = [SliceUpdate([2 * gradient[one.start : one.end]], scale=0.5) for one in self.parts]
        found = joined(self.rule.find(number, update, asks) for number, update in enumerate(updates))
        commands = self.method.directs(found, value.item())
        for number, (one, update) in enumerate(zip(self.parts, updates, strict=True)):
            directed = SliceUpdate(update.sums, scale=update.scale, commands=commands)
            self.rule.apply(number, [self.values[one.start : one.end]], directed)

    def saved(self) -> tuple[bytes, OptimizerState]:
        parts = [part for number in range(len(self.parts)) for part in self.rule.state(number)]
        return msgspec.json.encode(self.method.state()), OptimizerState(parts)


def of_torch(loss: Loss, start: Tensor, settings: LbfgsSettings, evaluations: int) -> tuple[list[float], list[Tensor]]:
    """Losses and parameters of each evaluation of torch's L-BFGS."""
    x = start.clone().requires_grad_()
    losses, values = list[float](), list[Tensor]()
    optimizer = torch.optim.LBFGS(
        [x], lr=0.5, max_iter=10**6, max_eval=evaluations, history_size=settings.history_size, tolerance_change=-1.0,
        tolerance_grad=settings.tolerance_grad, line_search_fn="strong_wolfe" if settings.searches else None,
    )  # fmt: skip

    def closure() -> Tensor:
        optimizer.zero_grad()
        value = loss(x)
        value.backward()
        losses.append(value.item())
        values.append(x.detach().clone())
        return value

    optimizer.step(closure)
    return losses, values


CASES = [(rosenbrock, 10, True), (softmax, 18, False), (softmax, 18, True), (steep, 9, False), (steep, 9, True)]


@pytest.mark.parametrize(("loss", "size", "searches"), CASES, ids=lambda one: getattr(one, "__name__", str(one)))
@pytest.mark.parametrize("slices", [1, 3])
def test_vectors_in_slices_have_torch_s_iterates_evaluation_by_evaluation(loss, size, searches, slices):
    settings = LbfgsSettings(history_size=4, tolerance_grad=0.0, searches=searches)
    start = torch.linspace(-1.2, 1.1, size, dtype=torch.float64)
    losses, values = of_torch(loss, start, settings, 30)
    ours = Cut(start, slices, settings)
    for number in range(30):
        torch.testing.assert_close(
            ours.values, values[number], rtol=1e-7, atol=1e-7, msg=lambda text, n=number: f"{n}: {text}"
        )
        ours.update(loss)
    assert losses[0] > 1.01 * losses[29]
    torch.testing.assert_close(ours.losses, losses[:30], rtol=1e-7, atol=1e-9)


@pytest.mark.parametrize("searches", [False, True])
def test_what_goes_on_from_a_checkpoint_has_the_same_bits_after_any_update(searches):
    settings = LbfgsSettings(history_size=3, tolerance_grad=0.0, searches=searches)
    start = torch.linspace(-1.2, 1.1, 9, dtype=torch.float64)
    whole = Cut(start, 2, settings)
    for number in range(25):
        again, others = (Cut(whole.values, slices, settings, whole.saved()) for slices in (2, 3))
        whole.update(steep)
        again.update(steep)
        others.update(steep)
        assert torch.equal(again.values, whole.values), number
        assert again.saved()[0] == whole.saved()[0], number
        torch.testing.assert_close(others.values, whole.values, rtol=1e-9, atol=1e-9)


def test_where_the_gradient_is_small_enough_nothing_moves():
    settings = LbfgsSettings(history_size=3, tolerance_grad=1e-3, searches=True)
    ours = Cut(torch.linspace(-1.2, 1.1, 9, dtype=torch.float64), 2, settings)
    for _ in range(40):
        ours.update(steep)
    before = ours.values.clone()
    (gradient,) = torch.autograd.grad(steep(x := before.clone().requires_grad_()), x)
    assert 0 < gradient.abs().max() <= 1e-3
    ours.update(steep)
    assert torch.equal(before, ours.values)


def test_inner_products_of_sums_follow_from_those_that_were_measured():
    draws = torch.Generator().manual_seed(0)
    vectors = {name: torch.randn(7, generator=draws, dtype=torch.float64) for name in (GRADIENT, "a", "b")}
    known, asked = InnerProducts(), Asked(tuple(vectors), tuple(vectors))
    table = torch.stack(list(vectors.values()))
    known.learn(asked, FoundProducts(tuple((table @ table.t()).flatten().tolist())))
    for command in (Combine("c", ("a", "b"), (2.0, -1.0)), Combine("a", ("c", GRADIENT), (1.0, 0.5)), Combine("b")):
        known.combine(command)
        if command.of:
            vectors[command.to] = sum(f * vectors[n] for n, f in zip(command.of, command.factors, strict=True))
        else:
            del vectors[command.to]
    for one, other in ((one, other) for one in vectors for other in vectors):
        assert known.of(one, other) == pytest.approx(float(vectors[one] @ vectors[other]))
    with pytest.raises(KeyError):
        known.of("a", "b")


def test_a_part_that_nobody_used_has_no_gradient_and_a_slice_of_buffers_no_products():
    rule = VectorRule({0: [Range("x", 0, 2), Range("y", 0, 3)]}, lambda _: 0.1, None)
    update = SliceUpdate([torch.tensor([1.0, 2.0]), None], scale=0.5)
    asked = Asked((GRADIENT,), (GRADIENT,))
    found = rule.find(0, update, asked)
    assert (found.products, found.magnitudes, found.largest, found.rate) == ((1.25,), (1.5,), (1.0,), 0.1)
    assert rule.find(1, update, asked) == FoundProducts()
    values = [torch.ones(2), torch.ones(3)]
    step = Combine(PARAMETERS, (PARAMETERS, GRADIENT), (1.0, -1.0))
    rule.apply(0, values, SliceUpdate(update.sums, scale=0.5, commands=(step,)))
    assert [one.tolist() for one in values] == [[0.5, 0.0], [1.0, 1.0, 1.0]]
