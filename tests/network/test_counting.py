"""Losses divide by a count: torch's losses as torch itself divides, others as they say; figures, too."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from volary.errors import SettingError
from volary.network import build_loss
from volary.network.flow import Flow
from volary.network.losses.cross_entropy import CrossEntropy
from volary.network.losses.mse import MeanSquaredError

SCORES = torch.randn(6, 4, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
TARGETS = torch.tensor([0, 1, -100, 2, 3, 1])
WEIGHT = torch.tensor([1.0, 0.25, 3.0, 0.5], dtype=torch.float64)


class Derived(nn.CrossEntropyLoss):
    """A class of the user's own."""


class Says:
    """A mean over what it says."""

    def __call__(self, output: Tensor, target: Tensor) -> Tensor:
        return output[target != -100].sum() / self.counted(target)

    def counted(self, target: Tensor) -> Tensor:
        return (target != -100).sum()


LOSSES: dict[str, tuple[Any, dict[str, Any]]] = {
    "of Volary": (CrossEntropy(), {}),
    "smoothed": (CrossEntropy(label_smoothing=0.2), {}),
    "of torch": (nn.CrossEntropyLoss, {}),
    "with weights": (nn.CrossEntropyLoss, {"weight": WEIGHT.tolist(), "ignore_index": 1}),
    "smoothed with weights": (nn.CrossEntropyLoss, {"weight": WEIGHT.tolist(), "label_smoothing": 0.1}),
    "an object": (nn.CrossEntropyLoss(WEIGHT), {}),
    "derived": (Derived, {"ignore_index": 3}),
    "of log probabilities": (nn.NLLLoss, {"ignore_index": 2}),
    "a function": (functional.cross_entropy, {"ignore_index": 1}),
    "a function with weights": (functional.nll_loss, {"weight": WEIGHT.tolist()}),
    "one that says it": (Says, {}),
}


@pytest.fixture(autouse=True)
def _in_64_bits() -> Any:
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


@pytest.mark.parametrize("name", LOSSES)
def test_parts_weighted_by_what_counts_make_the_mean_of_the_whole(name: str) -> None:
    criterion = build_loss(LOSSES[name][0], arguments=LOSSES[name][1])
    output = SCORES.log_softmax(1)
    targets = TARGETS.clamp(min=0) if "ignore_index" in LOSSES[name][1] else TARGETS
    whole = criterion(output, targets)
    parts = [slice(0, 1), slice(1, 3), slice(3, 6)]
    counts = [criterion.counted(targets[part]) for part in parts]
    means = [criterion(output[part], targets[part]) for part in parts]
    assert sum(count * mean for count, mean in zip(counts, means, strict=True)) / sum(counts) == pytest.approx(whole)
    totals = sum((criterion.totals(output[part], targets[part]) for part in parts), torch.zeros(1, 2))
    assert criterion.figures(totals)["loss"] == pytest.approx(whole.item(), rel=1e-5)


def test_losses_of_which_each_sample_counts_alike_count_samples() -> None:
    likely = SCORES.softmax(1)
    for loss, target in ((MeanSquaredError(), SCORES), (nn.HuberLoss, SCORES), (nn.CrossEntropyLoss(WEIGHT), likely)):
        flow = Flow(nn.Identity(), build_loss(loss), "train", positions=4)
        assert flow.counted(target) == 6


def test_where_every_position_counts_a_batch_counts_its_samples_exactly() -> None:
    flow = Flow(nn.Identity(), build_loss(CrossEntropy()), "train", positions=35)
    targets = torch.zeros(11, 35, dtype=torch.int64)
    assert flow.counted(targets) == 11
    targets[0, :7] = -100
    assert flow.counted(targets) == 11 - 7 / 35


def test_where_nothing_counts_there_is_no_loss_and_no_figure() -> None:
    ignored = torch.full((3,), -100)
    for loss in (CrossEntropy(), nn.CrossEntropyLoss, Says):
        criterion = build_loss(loss)
        assert criterion.counted(ignored) == 0
        assert criterion.figures(criterion.totals(SCORES[:3], ignored)) == {}


@pytest.mark.parametrize(
    ("counted", "sentence"),
    [
        (3, r"^loss 'odd' has counted of type int; accepted: counted\(target\)$"),
        (lambda target: -1, r"^loss 'odd': counted gives -1; accepted: a number from 0$"),
        (lambda target: float("nan"), r"^loss 'odd': counted gives nan; accepted: a number from 0$"),
    ],
)
def test_what_counts_is_a_number_that_the_targets_give(counted: Any, sentence: str) -> None:
    def odd(output: Tensor, target: Tensor) -> Tensor:
        return output.mean()

    odd.counted = counted  # type: ignore[attr-defined]
    with pytest.raises(SettingError, match=sentence):
        build_loss(odd).counted(TARGETS)


def test_a_target_that_no_weight_belongs_to_is_for_the_loss_to_refuse() -> None:
    criterion = build_loss(partial(functional.cross_entropy, weight=WEIGHT))
    assert criterion.counted(torch.tensor([0, 9])) == 1
