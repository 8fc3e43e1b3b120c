"""Targets that differ in size are filled up: a loss for which that counts is refused, in training and validation."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch

from train._training import USER_LOSSES, session
from volary.data.sources.text import Text
from volary.errors import SettingError
from volary.session import Session
from volary.train.model import build_model
from volary.train.trial import try_session

CPU = torch.device("cpu")


def padded(loss: Any, *, differ: str = "train test", **more: Any) -> Session:
    """Series of one value a step, whose lengths differ in these splits."""
    one = session("Series", source={"name": "SeriesData", "differ": differ}, loss=loss, **more)
    return replace(one, data=replace(one.data, pad=True))


def tried(one: Session) -> None:
    try_session(build_model(one, CPU), CPU, 1, started=False)


@pytest.mark.parametrize(
    "loss",
    [
        "mse",
        "torch.nn:MSELoss",
        "torch.nn:L1Loss",
        "torch.nn:BCEWithLogitsLoss",
        "torch.nn.functional:mse_loss",
        f"{USER_LOSSES}:squared",
        f"{USER_LOSSES}:known",
    ],
)
def test_a_loss_for_which_filled_up_targets_count_is_refused(loss):
    with pytest.raises(SettingError, match=r"does not say that it ignores -100, with which targets of differing size"):
        tried(padded(loss))


@pytest.mark.parametrize("loss", ["mse", "torch.nn:BCEWithLogitsLoss"])
def test_targets_of_one_size_suit_any_loss(loss):
    tried(padded(loss, differ=""))


def test_validation_data_is_refused_alike():
    one = padded("mse", differ="test")
    tried(one)
    model = build_model(one, CPU)
    with pytest.raises(SettingError, match="does not say that it ignores -100"):
        model.validation.fetch(torch.arange(3))


def test_a_loss_that_ignores_them_is_a_mean_over_the_others():
    model = build_model(padded(f"{USER_LOSSES}:there"), CPU)
    inputs, targets = model.samples.fetch(torch.arange(4))
    flow = model.flow("train")
    errors = [model.module(one) - values for one, values in (model.samples._dataset[number] for number in range(4))]
    expected = torch.cat(errors).square().mean().item()
    assert flow(inputs, targets).item() == pytest.approx(expected)
    assert flow.figures(flow.measure(inputs, targets))["loss"] == pytest.approx(expected)


def test_lines_of_text_differ_so_that_they_are_always_refused(tmp_path):
    (tmp_path / "text.txt").write_text("ab\nabcd\nb\n" * 6)
    one = padded("mse")
    lines = replace(one, data=replace(one.data, pad=False, source=Text(path=tmp_path / "text.txt", lines=True)))
    with pytest.raises(SettingError, match="does not say that it ignores -100"):
        build_model(lines, CPU)
