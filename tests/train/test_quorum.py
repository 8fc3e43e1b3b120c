"""Local steps whose rounds close with a quorum: over servers, against what one process does by hand, in 64 bits."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch

from train._served import Kept, served
from train._training import session
from train.test_local import DILOCO, MOMENTUM, ROUNDING, by_hand
from volary.errors import SettingError
from volary.session import Session, SessionError
from volary.session.spec import Strategy

STEPS = 16  # four rounds, which span epochs


def over_servers(consistency: dict[str, Any], workers: int, steps: int = STEPS, **of: Any) -> Session:
    one = session("Exact", optimizer=MOMENTUM, train={"steps": steps}, **of)
    exchange = {"name": "server", "servers": 1}
    return replace(one, strategy=Strategy(workers=workers, consistency=consistency, exchange=exchange, bucket_mb=4e-4))


def alone(rank: int, world_size: int) -> tuple[Kept | None, Kept | None]:
    """Without a stop, and as a run of half the steps that is resumed."""
    consistency = {**DILOCO, "quorum": 1}
    whole = served(rank, world_size, over_servers(consistency, 1), "whole")
    served(rank, world_size, over_servers(consistency, 1, STEPS // 2), "halves")
    return whole, served(rank, world_size, over_servers(consistency, 1), "halves")


def test_a_quorum_of_one_worker_is_what_one_does_by_hand_and_a_resumed_run_equals_an_uninterrupted_one(
    workers, tmp_path
):
    whole, resumed = workers(2, alone)[0]
    one = replace(over_servers(DILOCO, 1), strategy=Strategy(consistency=DILOCO))
    expected = by_hand(one, 1, tmp_path, served=True)
    assert whole.outcome == resumed.outcome == "finished"
    for parameter, value in expected.items():
        torch.testing.assert_close(whole.parameters[parameter], value, rtol=0, atol=ROUNDING)
        assert torch.equal(resumed.parameters[parameter], whole.parameters[parameter])


def in_rounds(rank: int, world_size: int) -> Kept | None:
    return served(rank, world_size, over_servers({"name": "local", "period": 2, "quorum": 1}, 2, 40))


@pytest.mark.slow  # three processes more
def test_two_workers_learn_in_rounds_that_wait_for_one(workers):
    first, second, _ = workers(3, in_rounds)
    assert (first.run_outcome, second.outcome) == ("finished", "finished")
    rows = sorted(first.rows + second.rows, key=lambda row: row.ended_at)
    assert sum(row.samples for row in rows) == 8 * 41  # each sample of an epoch once
    assert sum(row.loss for row in rows[-10:]) < 0.7 * sum(row.loss for row in rows[:10])


@pytest.mark.parametrize(
    ("strategy", "sentence"),
    [
        ({"consistency": {"quorum": 3}}, "quorum: is 3; accepted: 1 to 2, the number of workers"),
        ({"consistency": {"quorum": 0}}, "quorum: is 0; accepted: 1 up to the number of workers"),
        (
            {"consistency": {"quorum": 1, "grace": -0.5}},
            "grace: is -0.5; accepted: 0 or more, as a share of what a quo",
        ),
        ({"consistency": {"grace": 0.5}}, "grace: is 0.5, which is of a quorum; accepted beside it: quorum"),
        (
            {"consistency": {"quorum": 1, "fragments": 2}},
            "quorum: is 1, which is of servers, and fragments is 2, of all-reduce",
        ),
        (
            {"consistency": {"quorum": 1}, "exchange": "allreduce"},
            "strategy.consistency.quorum: is 1, and with exchange=allreduce every worker has all parameters, as of one "
            "step; accepted: exchange=server, or quorum=null",
        ),
    ],
)
def test_what_does_not_go_with_it_is_refused(strategy, sentence):
    given = {"workers": 2, **strategy, "consistency": {"name": "local", **strategy["consistency"]}}
    with pytest.raises((SessionError, SettingError)) as refused:
        session("Exact", strategy=given)
    assert sentence in str(refused.value)
