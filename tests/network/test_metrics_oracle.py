"""Every metric has the figures of torchmetrics: uneven shares, classes that never appear, ties, ignored targets.

Skipped where torchmetrics is not installed; it comes with the extra `dev`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor

from volary.network.metrics import ROOM

torchmetrics = pytest.importorskip("torchmetrics", reason="torchmetrics is not installed: pip install 'volary[dev]'")
IGNORED, CLASSES = -100, 5
SHARES = (slice(0, 1), slice(1, 1), slice(1, 9), slice(9, 40))  # one worker has a sample, one has none


def scores(kind: str, classes: int = CLASSES, samples: int = 40) -> tuple[Tensor, Tensor]:
    made = torch.Generator().manual_seed(7)
    output = torch.randn(samples, classes, generator=made)
    target = torch.randint(classes, (samples,), generator=made)
    if kind == "ties":
        output = output.mul(2).round().div(2)
    if kind in ("absent", "absent and never predicted"):
        target = target.where(target != 2, 3)
    if kind == "absent and never predicted":
        output[:, 2] = -9.0
    if kind == "ignored":
        target[::3] = IGNORED
    if kind == "one class":
        target.fill_(1)
    return output, target


KINDS = ("plain", "ties", "absent", "absent and never predicted", "ignored", "one class")


def ours(name: str, output: Tensor, target: Tensor, **settings: Any) -> dict[str, float]:
    """The figures of all shares together, each added up where it is."""
    metric: Any = ROOM.load(name)(**settings)
    classes = output.shape[1] if metric.outputs != "values" else 0
    counts = torch.ones(len(target)) if metric.outputs == "values" else (target != IGNORED).double()
    parts = [metric.sums(output[one].float(), target[one], classes).double() for one in SHARES]
    found: dict[str, float] = metric.figures(sum(parts, torch.zeros(())).tolist(), float(counts.sum()))
    return found


def theirs(make: Callable[[], Any], output: Tensor, target: Tensor) -> Tensor:
    """The figure of a metric object that was shown all shares, one after the other."""
    metric = make()
    for one in SHARES:
        if len(target[one]):
            metric.update(output[one], target[one])
    found: Tensor = metric.compute()
    return found


BINARY_AREA = partial(torchmetrics.classification.BinaryAUROC, ignore_index=IGNORED)
OF_CLASSES: dict[str, Callable[..., Any]] = {
    "f1": torchmetrics.classification.MulticlassF1Score,
    "precision": torchmetrics.classification.MulticlassPrecision,
    "recall": torchmetrics.classification.MulticlassRecall,
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("average", ["macro", "micro"])
@pytest.mark.parametrize("name", OF_CLASSES)
def test_averages_over_classes_are_torchmetrics(name: str, average: str, kind: str) -> None:
    output, target = scores(kind)
    expected = theirs(lambda: OF_CLASSES[name](CLASSES, average=average, ignore_index=IGNORED), output, target)
    (figure,) = ours(name, output, target, average=average).values()
    assert figure == pytest.approx(float(expected))


@pytest.mark.parametrize("kind", KINDS)
def test_figures_of_each_class_are_torchmetrics(kind: str) -> None:
    output, target = scores(kind)
    found = ours("by_class", output, target)
    for name, make in OF_CLASSES.items():
        each = theirs(lambda make=make: make(CLASSES, average="none", ignore_index=IGNORED), output, target)
        for number, expected in enumerate(each.tolist()):
            assert found.get(f"{name}[{number}]", 0.0) == pytest.approx(expected), (name, number)


@pytest.mark.parametrize("kind", KINDS)
def test_the_confusion_matrix_is_torchmetrics(kind: str) -> None:
    output, target = scores(kind)
    make = torchmetrics.classification.MulticlassConfusionMatrix
    expected = theirs(lambda: make(CLASSES, ignore_index=IGNORED), output, target)
    found = ours("confusion", output, target)
    assert [found[f"confusion[{row},{column}]"] for row in range(CLASSES) for column in range(CLASSES)] == (
        expected.flatten().tolist()
    )


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "ties"])  # who is best of equals is torch's choice
@pytest.mark.parametrize("k", [1, 2, 5])
def test_accuracy_of_the_best_k_is_torchmetrics(k: int, kind: str) -> None:
    output, target = scores(kind)
    make = torchmetrics.classification.MulticlassAccuracy
    expected = float(theirs(lambda: make(CLASSES, top_k=k, average="micro", ignore_index=IGNORED), output, target))
    assert ours("topk", output, target, k=k) == {f"top{k}": pytest.approx(expected)}
    if k == 1:
        assert ours("accuracy", output, target) == {"accuracy": pytest.approx(expected)}


@pytest.mark.parametrize("kind", ["plain", "ties", "absent", "ignored"])
@pytest.mark.parametrize("classes", [2, CLASSES])
def test_the_area_under_the_curve_is_torchmetrics_where_scores_fall_in_bins_of_their_own(
    classes: int, kind: str
) -> None:
    output, target = scores(kind, classes)
    chances, areas = output.double().softmax(1), []
    for number in [1] if classes == 2 else target[target != IGNORED].unique().tolist():
        mine = (target == number).long().where(target != IGNORED, IGNORED)
        areas.append(float(theirs(BINARY_AREA, chances[:, number], mine)))
    expected = sum(areas) / len(areas)  # of a class that is never a target there is no curve
    assert ours("roc_auc", output, target, bins=10_000)["roc_auc"] == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize("shape", [(), (3,)])
def test_figures_of_values_are_torchmetrics(shape: tuple[int, ...]) -> None:
    made = torch.Generator().manual_seed(3)
    target = 100 + torch.randn(40, *shape, generator=made)
    output = target + torch.randn(40, *shape, generator=made)
    flat = output.reshape(40, -1), target.reshape(40, -1)
    error = torchmetrics.functional.mean_absolute_error(*(one.flatten() for one in flat))
    assert ours("absolute_error", output, target)["absolute_error"] == pytest.approx(float(error))
    explained = torchmetrics.functional.r2_score(*(one.flatten().double() for one in flat))
    assert ours("r2", output, target)["r2"] == pytest.approx(float(explained), abs=1e-6)


@pytest.mark.parametrize("kind", ["plain", "ignored"])
def test_perplexity_and_bits_are_torchmetrics(kind: str) -> None:
    output, target = scores(kind)
    expected = torchmetrics.functional.text.perplexity(output[None], target[None], ignore_index=IGNORED)
    assert summed("perplexity", output, target) == pytest.approx(float(expected))
    assert summed("bits_per_character", output, target) == pytest.approx(float(expected.log2()))


def summed(name: str, output: Tensor, target: Tensor) -> float:
    kept = target != IGNORED  # as the loss counts
    return next(iter(ours(name, output, target).values())) if kept.any() else 0.0


def test_every_metric_has_its_oracle_here() -> None:
    named = {*OF_CLASSES, "by_class", "confusion", "topk", "accuracy", "roc_auc", "absolute_error", "r2"}
    assert named | {"perplexity", "bits_per_character"} == set(ROOM.names())
