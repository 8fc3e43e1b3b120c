"""Every metric adds up over batches, counts no ignored target, and decides where a loss names it."""

from __future__ import annotations

import re
from math import isnan
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from volary.errors import SettingError
from volary.network import build_loss
from volary.network.losses import ROOM as LOSSES
from volary.network.metrics import ROOM
from volary.network.metrics._base import Metric
from volary.session.reading.problems import SessionError
from volary.session.spec import Session

DOCS = Path(__file__).parents[2] / "docs" / "networks.md"
SUITS = {"classes": "cross_entropy", "positions": "cross_entropy", "values": "mse"}
each = pytest.mark.parametrize("name", ROOM.names())


def criterion(name: str, classes: int = 5, **settings: Any) -> Any:
    """A loss that measures it, and lets it decide if it can."""
    metric = ROOM.load(name)(**settings)
    decides = "loss" if metric.higher_is_better is None else metric.name
    loss = build_loss(LOSSES.load(SUITS[metric.outputs])(metric=decides, metrics=(metric,)))
    loss.suit(classes)
    return loss


def figures(name: str, output: Tensor, target: Tensor, **settings: Any) -> dict[str, float]:
    loss = criterion(name, output.shape[1], **settings)
    found: dict[str, float] = loss.figures(loss.totals(output, target))
    return found


def batch(name: str, samples: int = 7) -> tuple[Tensor, Tensor]:
    made = torch.Generator().manual_seed(3)
    if ROOM.load(name).outputs == "values":
        return torch.randn(samples, 2, generator=made), torch.randn(samples, 2, generator=made)
    return torch.randn(samples, 5, generator=made), torch.randint(5, (samples,), generator=made)


@each
def test_every_metric_has_its_row_in_the_docs(name: str) -> None:
    assert re.search(rf"^\| `{name}` \|", DOCS.read_text(), re.MULTILINE), f"docs/networks.md has no row for {name}"


@each
def test_every_metric_says_what_it_is_of(name: str) -> None:
    metric = ROOM.load(name)()
    assert isinstance(metric, Metric)
    assert metric.outputs in SUITS
    assert metric.higher_is_better in (True, False, None)
    assert metric.name


@each
def test_a_loss_that_names_it_measures_it_and_it_adds_up_over_batches(name: str) -> None:
    loss = criterion(name)
    metric = ROOM.load(name)()
    if metric.higher_is_better is not None:
        assert (loss.metric, loss.higher_is_better) == (metric.name, metric.higher_is_better)
    output, target = batch(name)
    whole = loss.figures(loss.totals(output, target))
    parts = sum((loss.totals(output[part], target[part]) for part in (slice(0, 2), slice(2, 7))), torch.zeros(()))
    assert loss.figures(parts) == pytest.approx(whole)
    assert metric.name in {one.partition("[")[0] for one in whole} or metric.higher_is_better is None
    assert loss.figures(torch.zeros(len(loss.measured), 2)) == {}


@each
def test_a_target_that_is_ignored_adds_nothing(name: str) -> None:
    if ROOM.load(name).outputs == "values":
        return
    loss = criterion(name)
    output, target = batch(name)
    ignored = torch.where(torch.arange(len(target)) < 3, -100, target)
    assert loss.figures(loss.totals(output, ignored)) == pytest.approx(
        loss.figures(loss.totals(output[3:], target[3:]))
    )


def test_mean_absolute_error_is_torch_s() -> None:
    output, target = batch("absolute_error")
    loss = criterion("absolute_error")
    figures = loss.figures(loss.totals(output, target))
    assert figures["absolute_error"] == pytest.approx(torch.nn.functional.l1_loss(output, target).item())
    assert list(figures) == ["loss", "absolute_error"]


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"name": "cross_entropy", "metric": "acuracy"}, "metric: unknown name 'acuracy'; did you mean 'accuracy'"),
        ({"name": "mse", "metric": "accuracy"}, "metric 'accuracy' is of classes; accepted: loss, absolute_error, r2$"),
        ({"name": "cross_entropy", "metric": "absolute_error"}, "is of values; accepted: loss, accuracy, bits"),
    ],
)
def test_a_session_that_names_another_is_refused(settings: dict[str, Any], sentence: str) -> None:
    with pytest.raises(SessionError, match=sentence):
        Session(network="lenet", data={"source": "digits"}, loss=settings)
    with pytest.raises(SettingError, match=sentence):
        LOSSES.load(settings["name"])(metric=settings["metric"])


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        (
            {"metric": "confusion"},
            "metric 'confusion' is several figures and goes among `metrics`; accepted: loss, acc",
        ),
        ({"metrics": ["r2"]}, "metrics: 'r2' is of values; accepted: accuracy, bits_per_character, by_class"),
        ({"metrics": ["f1", {"name": "f1", "average": "macro"}]}, "metrics has 'f1' twice; accepted: each once"),
        ({"metrics": [{"name": "topk", "k": 0}]}, "k is 0; accepted: a whole number from 1|k: is 0; accepted"),
        ({"metrics": ["recal"]}, "loss.metrics: unknown name 'recal'; did you mean 'recall'"),
        ({"metrics": [{"name": "f1", "averege": "micro"}]}, "did you mean 'average'"),
    ],
)
def test_a_session_with_metrics_that_do_not_fit_is_refused(settings: dict[str, Any], sentence: str) -> None:
    with pytest.raises(SessionError, match=sentence):
        Session(network="lenet", data={"source": "digits"}, loss={"name": "cross_entropy", **settings})


def test_one_of_the_metrics_decides_by_its_figure_s_name() -> None:
    loss = {"name": "cross_entropy", "metric": "top3", "metrics": [{"name": "topk", "k": 3}, "f1"]}
    made = build_loss(Session(network="lenet", data={"source": "digits"}, loss=loss).loss)
    assert (made.metric, made.higher_is_better) == ("top3", True)


def test_too_many_classes_and_an_unknown_number_are_refused() -> None:
    for name, classes, sentence in (
        ("f1", 0, "metric 'f1': the data does not say how many classes there are"),
        ("confusion", 101, "metric 'confusion' of 101 classes; accepted: up to 100 classes"),
        ("roc_auc", 1000, "keeps 1024000 sums; accepted: up to 131072"),
    ):
        with pytest.raises(SettingError, match=sentence):
            criterion(name, classes)


SCORES, CLASSES = torch.randn(400, 4, generator=torch.Generator().manual_seed(1)), torch.arange(400) % 7 % 4
PREDICTED = SCORES.argmax(1)


def ratio(part: Tensor, whole: Tensor) -> float:
    return int((part & whole).sum()) / int(whole.sum())


def by_hand(one: int) -> tuple[float, float, float]:
    """Precision, recall and their harmonic mean, of a class."""
    precision, recall = (ratio(one == CLASSES, one == PREDICTED), ratio(one == PREDICTED, one == CLASSES))
    return precision, recall, 2 / (1 / precision + 1 / recall)


def test_precision_recall_and_f1_are_means_over_classes_or_of_all_together() -> None:
    classes = [by_hand(one) for one in range(4)]
    for place, name in enumerate(("precision", "recall", "f1")):
        macro = sum(one[place] for one in classes) / 4
        assert figures(name, SCORES, CLASSES)[name] == pytest.approx(macro)
        micro = figures(name, SCORES, CLASSES, average="micro")[f"{name}_micro"]
        assert micro == pytest.approx(float((PREDICTED == CLASSES).float().mean()))
        found = figures("by_class", SCORES, CLASSES)
        assert [found[f"{name}[{one}]"] for one in range(4)] == pytest.approx([one[place] for one in classes])


def test_a_class_that_is_neither_target_nor_prediction_is_left_out_and_one_without_a_hit_is_0() -> None:
    output, target = torch.eye(4)[torch.tensor([0, 0, 1])], torch.tensor([0, 0, 2])
    assert figures("f1", output, target)["f1"] == pytest.approx(1 / 3)
    found = figures("by_class", output, target)
    assert {name: value for name, value in found.items() if name.startswith("recall")} == {
        "recall[0]": 1.0, "recall[1]": 0.0, "recall[2]": 0.0,
    }  # fmt: skip


def test_the_matrix_counts_targets_by_row_and_predictions_by_column() -> None:
    found = figures("confusion", SCORES, CLASSES)
    for row in range(4):
        for column in range(4):
            assert found[f"confusion[{row},{column}]"] == int(((row == CLASSES) & (column == PREDICTED)).sum())


def test_outputs_beyond_the_data_s_classes_are_wrong_predictions() -> None:
    loss = criterion("recall", classes=2)
    output, target = torch.eye(3)[torch.tensor([0, 2, 1, 1])], torch.tensor([0, 0, 1, 1])
    assert loss.figures(loss.totals(output, target))["recall"] == pytest.approx(0.75)


def test_top_k_is_a_place_among_the_k_highest() -> None:
    places = (SCORES.gather(1, CLASSES.unsqueeze(1)) < SCORES).sum(1)
    for k in (1, 2, 3, 9):
        assert figures("topk", SCORES, CLASSES, k=k)[f"top{k}"] == pytest.approx(float((places < k).float().mean()))


def area_by_pairs(score: Tensor, mine: Tensor) -> float:
    own, other = score[mine].unsqueeze(1), score[~mine]
    return float((own > other).double().mean() + (own == other).double().mean() / 2)


@pytest.mark.parametrize("classes", [2, 4])
def test_auc_is_the_share_of_pairs_in_order_to_the_width_of_a_bin(classes: int) -> None:
    target = CLASSES % classes
    output = (SCORES[:, :classes] + torch.eye(classes)[target]).double()
    curves = range(1, 2) if classes == 2 else range(classes)
    odds = torch.stack([output.softmax(1)[:, one].logit() for one in curves], 1)
    exact = [area_by_pairs(odds[:, place], target == one) for place, one in enumerate(curves)]
    for bins, near in ((512, 2e-3), (1 << 14, 1e-4)):
        found = figures("roc_auc", output.float(), target, bins=bins)["roc_auc"]
        assert found == pytest.approx(sum(exact) / len(exact), abs=near)


def test_auc_is_exact_where_no_bin_has_both_kinds_and_half_where_scores_are_alike() -> None:
    target = torch.tensor([0, 1, 0, 1])
    output = torch.tensor([0.0, 3.0, 1.0, 2.0])
    scores = torch.stack([-output, output], 1)
    assert figures("roc_auc", scores, target)["roc_auc"] == 1.0
    assert figures("roc_auc", torch.zeros(4, 2), target)["roc_auc"] == 0.5
    assert isnan(figures("roc_auc", scores, torch.zeros_like(target))["roc_auc"])


def test_r2_is_one_minus_the_errors_over_the_variance_far_from_0_too() -> None:
    made = torch.Generator().manual_seed(2)
    target = torch.randn(300, 1, generator=made) + 500
    output = target + 0.3 * torch.randn(300, 1, generator=made)
    exact = 1 - (output - target).double().square().sum() / (target.double() - target.double().mean()).square().sum()
    assert figures("r2", output, target)["r2"] == pytest.approx(float(exact), abs=1e-9)
    assert isnan(figures("r2", output, torch.ones(300, 1))["r2"])


def test_bits_per_character_are_the_logarithm_of_perplexity() -> None:
    found = figures("bits_per_character", SCORES, CLASSES)
    assert 2 ** found["bits_per_character"] == pytest.approx(figures("perplexity", SCORES, CLASSES)["perplexity"])
    assert found["bits_per_character"] == pytest.approx(found["loss"] / float(torch.tensor(2.0).log()))
