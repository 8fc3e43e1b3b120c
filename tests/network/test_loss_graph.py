"""Which losses autograd shows to be means over a part of a batch, as they are written; and no plain mean among them."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.functional import cross_entropy

from volary.network.loss_graph import mean_of_some_in

SAMPLES, STEPS, CLASSES = 4, 5, 3
GENERATOR = torch.Generator().manual_seed(1)
INPUTS = torch.randn(SAMPLES, STEPS, 6, generator=GENERATOR)
VALUES = torch.rand(SAMPLES, STEPS, CLASSES, generator=GENERATOR)
TARGETS = torch.randint(CLASSES, (SAMPLES, STEPS), generator=GENERATOR)
MASK = torch.ones(SAMPLES, STEPS, dtype=torch.bool)
MASK[0, 1:] = MASK[2, 3:] = False  # 14 of 20 count
IGNORING = TARGETS.masked_fill(~MASK, -100)
NETWORK = nn.Linear(6, CLASSES)


def out() -> Tensor:
    return NETWORK(INPUTS)


def entropy(targets: Tensor, **how: object) -> Tensor:
    return cross_entropy(out().flatten(0, 1), targets.flatten(), **how)


def each() -> Tensor:
    """The loss of each position."""
    return cross_entropy(out().transpose(1, 2), TARGETS, reduction="none")


def likelihood() -> Tensor:
    return out().log_softmax(-1).gather(-1, TARGETS.unsqueeze(-1)).squeeze(-1)


def alike(weight: float) -> Tensor:
    return torch.full((CLASSES,), weight)


PARTS: dict[str, Callable[[], Tensor]] = {
    "a mask by hand": lambda: (each() * MASK).sum() / MASK.sum(),
    "a mask, and never by zero": lambda: (each() * MASK).sum() / MASK.sum().clamp(min=1),
    "a mask of likelihoods": lambda: -(likelihood() * MASK).sum() / MASK.sum(),
    "a product": lambda: torch.dot(each().flatten(), MASK.flatten().float()) / MASK.sum(),
    "in parts": lambda: (each() * MASK).sum() / MASK.sum() / 4,
    "weights of positions": lambda: (each() * MASK * 0.7).sum() / (MASK * 0.7).sum(),
    "a sum by its count": lambda: entropy(IGNORING, reduction="sum") / MASK.sum(),
    "chosen losses": lambda: each()[MASK].mean(),
    "chosen scores": lambda: cross_entropy(out()[MASK], TARGETS[MASK]),
    "chosen values": lambda: functional.mse_loss(out()[MASK], VALUES[MASK]),
    "selected": lambda: each().masked_select(MASK).mean(),
    "targets ignored": lambda: entropy(IGNORING),
    "of another type": lambda: entropy(IGNORING).double(),
    "smoothed": lambda: entropy(IGNORING, label_smoothing=0.1),
    "weights of classes": lambda: entropy(TARGETS, weight=torch.tensor([1.0, 2.0, 3.0])),
    "smoothed with weights": lambda: entropy(TARGETS, weight=torch.tensor([1.0, 2.0, 3.0]), label_smoothing=0.1),
    "weights alike": lambda: entropy(IGNORING, weight=alike(2.0)),
    "one of two": lambda: functional.mse_loss(out(), VALUES) + 0.3 * entropy(IGNORING),
    "one of two, stacked": lambda: torch.stack([functional.mse_loss(out(), VALUES), entropy(IGNORING)]).sum(),
}
WHOLE: dict[str, Callable[[], Tensor]] = {
    "targets": lambda: entropy(TARGETS),
    "smoothed": lambda: entropy(TARGETS, label_smoothing=0.1),
    "weights alike": lambda: entropy(TARGETS, weight=alike(2.0)),
    "weights alike, smoothed": lambda: entropy(TARGETS, weight=alike(1.3), label_smoothing=0.1),
    "values": lambda: functional.mse_loss(out(), VALUES),
    "a sum by samples": lambda: each().sum() / SAMPLES,
    "half a square": lambda: (out() - VALUES).square().sum() / 2 / SAMPLES,
    "a mask of which all counts": lambda: each()[torch.ones_like(MASK)].mean(),
    "each sample's own": lambda: sum(cross_entropy(NETWORK(INPUTS[one]), TARGETS[one]) for one in range(4)) / 4,
    "each sample's own, stacked": lambda: torch.stack(
        [cross_entropy(NETWORK(INPUTS[one]), TARGETS[one]) for one in range(4)]
    ).mean(),
    "a penalty": lambda: entropy(TARGETS) + NETWORK.weight.square().sum() / 2,
    "a penalty of some": lambda: entropy(TARGETS) + 0.01 * NETWORK.weight[NETWORK.weight > 0].mean(),
    "dropout": lambda: functional.dropout(out(), 0.5).mean(),
    "a rectifier": lambda: functional.relu(out()).mean(),
    "attention": lambda: out().masked_fill(~MASK.unsqueeze(-1), -1e9).softmax(1).square().mean(),
    "experts": lambda: torch.cat([out()[MASK], 2 * out()[~MASK]]).mean(),
    "experts in place": lambda: torch.zeros_like(VALUES).index_put((MASK,), out()[MASK]).mean(),
    "an order": lambda: out()[torch.randperm(SAMPLES)].mean(),
    "a temperature": lambda: entropy(TARGETS) / 0.7,
}


@pytest.mark.parametrize("name", PARTS)
def test_a_mean_over_a_part_of_the_batch_is_seen(name: str) -> None:
    assert mean_of_some_in(PARTS[name](), SAMPLES)


@pytest.mark.parametrize("name", WHOLE)
def test_a_mean_over_the_batch_is_not_taken_for_one(name: str) -> None:
    assert mean_of_some_in(WHOLE[name](), SAMPLES) == ""
