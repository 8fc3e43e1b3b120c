"""Every metric adds up over batches, counts no ignored target, and decides where a loss names it."""

from __future__ import annotations

import re
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


def criterion(name: str) -> Any:
    return build_loss(LOSSES.load(SUITS[ROOM.load(name).outputs])(metric=name))


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
    assert isinstance(metric.higher_is_better, bool)


@each
def test_a_loss_that_names_it_measures_it_and_it_adds_up_over_batches(name: str) -> None:
    loss = criterion(name)
    assert (loss.metric, loss.higher_is_better) == (name, ROOM.load(name).higher_is_better)
    output, target = batch(name)
    whole = loss.figures(loss.totals(output, target))
    parts = sum((loss.totals(output[part], target[part]) for part in (slice(0, 2), slice(2, 7))), torch.zeros(()))
    assert loss.figures(parts) == pytest.approx(whole)
    assert name in whole
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
        ({"name": "mse", "metric": "accuracy"}, "metric 'accuracy' is of classes; accepted: loss, absolute_error"),
        ({"name": "cross_entropy", "metric": "absolute_error"}, "is of values; accepted: loss, accuracy, perplexity"),
    ],
)
def test_a_session_that_names_another_is_refused(settings: dict[str, Any], sentence: str) -> None:
    with pytest.raises(SessionError, match=sentence):
        Session(network="lenet", data={"source": "digits"}, loss=settings)
    with pytest.raises(SettingError, match=sentence):
        LOSSES.load(settings["name"])(metric=settings["metric"])
