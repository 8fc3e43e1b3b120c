"""A stream in shards trains alike with any number of workers, and is resumed where it was."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch

from train._training import session, trained
from volary.errors import SettingError
from volary.session import Session
from volary.session.spec import Strategy
from volary.train.model import build_model

EXACT = 1e-9  # in 64 bits


def of(steps: int = 14, workers: int = 1, **strategy: Any) -> Session:
    one = session("Exact", source={"name": "InShards"}, shuffle=False, train={"steps": steps})
    one = replace(one, evaluate=replace(one.evaluate, every="7 steps"))
    return replace(one, strategy=Strategy(workers=workers, **strategy))


def begun(rank: int, world_size: int) -> tuple[Any, Any, Any]:
    """Results of two workers, with copies and with shards, and half of a training, for others to resume."""
    whole = trained(rank, world_size, of(workers=2), "whole")
    sharded = trained(rank, world_size, of(workers=2, partition="sharded"), "sharded")
    trained(rank, world_size, of(workers=2), "half", until=lambda step: step >= 6)
    return whole, sharded, trained(rank, world_size, of(workers=2), "half")


def test_two_workers_learn_and_evaluate_as_one_and_resume_bit_for_bit(workers, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    alone = trained(0, 1, of(), "alone")
    assert len(alone.metrics) == 2
    found = workers(2, begun)
    for whole, sharded, resumed in found:
        for name, values in alone.parameters.items():
            torch.testing.assert_close(whole.parameters[name], values, rtol=0, atol=EXACT)
            torch.testing.assert_close(sharded.parameters[name], values, rtol=0, atol=EXACT)
            assert torch.equal(resumed.parameters[name], whole.parameters[name])
        assert [row.samples for row in whole.rows] != [10] * 14  # shards end one after the other
    for (step, figures), (other, others) in zip(alone.metrics, found[0][0].metrics, strict=True):
        assert (step, figures) == (other, pytest.approx(others))


def test_one_worker_goes_on_with_the_stream_of_two(workers, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    alone = trained(0, 1, of(), "alone")
    workers(2, half)
    resumed = trained(0, 1, of(), "half")
    for name, values in alone.parameters.items():
        torch.testing.assert_close(resumed.parameters[name], values, rtol=0, atol=EXACT)


def half(rank: int, world_size: int) -> None:
    trained(rank, world_size, of(workers=2), "half", until=lambda step: step >= 6)


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"strategy": {"workers": 2, "balance": "auto"}}, "strategy.balance is auto, and .* is a stream in shards"),
        ({"batch": {"name": "auto"}}, "data.batch grows, and .* is a stream in shards, .*; accepted: fixed"),
        (
            {"strategy": {"workers": 2, "exchange": "server"}},
            "is a stream, whose samples have no position that servers",
        ),
    ],
)
def test_what_needs_parts_of_another_size_is_refused(settings, sentence):
    one = session("Exact", source={"name": "InShards"}, shuffle=False, **settings)
    with pytest.raises(SettingError, match=sentence):
        build_model(one, torch.device("cpu"))
