"""`strategy.balance: auto`: where it cannot be had, one sentence says so before anything starts."""

from __future__ import annotations

from typing import Any

import pytest

from volary.errors import SettingError
from volary.session import Session
from volary.session.fitting.own_loop import of_own_loop
from volary.session.reading.problems import SessionError
from volary.session.spec import Strategy


def made(strategy: dict[str, Any], **more: Any) -> Session:
    data = {"source": "digits", **more.pop("data", {})}
    return Session(network="lenet", data=data, strategy={"workers": 4, "balance": "auto", **strategy}, **more)


@pytest.mark.parametrize(
    "strategy",
    [{}, {"workers": 1}, {"codec": "onebit"}, {"recover": "memory"}, {"partition": {"name": "sharded", "level": 2}}],
)
def test_synchronous_workers_that_divide_each_batch_may_have_it(strategy):
    assert made(strategy).strategy.balance == "auto"


@pytest.mark.parametrize(
    ("strategy", "more", "sentence"),
    [
        ({"balance": "fast"}, {}, "balance"),
        ({"exchange": "server"}, {}, "exchange=server servers hand out samples; accepted: equal, or exchange=allred"),
        ({"consistency": "local"}, {}, "with consistency=local workers learn from samples of their own between two"),
        ({"consistency": "gossip"}, {}, "accepted: equal, or consistency=bsp"),
        ({"partition": "pipeline"}, {}, "several workers compute with the same samples; accepted: equal, or partition"),
        ({"partition": "auto"}, {}, "accepted: equal, or partition=data or sharded"),
        ({}, {"data": {"batch_size": 4}}, "data.batch_size=4 leaves each worker the samples that it needs at least"),
        ({}, {"data": {"batch_size": 8}, "train": {"accumulate": 2}}, "accepted: equal, or a batch_size above 8"),
    ],
)
def test_what_cannot_be_balanced_is_refused_with_what_can(strategy, more, sentence):
    with pytest.raises((SettingError, SessionError)) as problem:
        made(strategy, **more)
    assert sentence in str(problem.value)


def test_a_loop_of_one_s_own_is_refused():
    with pytest.raises(SettingError, match="the loop is your own, which has batches made ahead; accepted: equal"):
        list(of_own_loop(Strategy(workers=2, balance="auto"), early_update=False))
