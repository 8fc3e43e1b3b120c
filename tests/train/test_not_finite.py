"""A loss that is NaN or infinite on one worker: the run stops and says where, or that update is left out everywhere."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

from train._training import OVERLAPPED, Quick, made, session, started, trained
from volary.data.order import epoch_order
from volary.errors import NotFinite
from volary.train.loop import train

# on two workers of 10 samples a step, these lie in step 3, in the share of rank 1
ORDER = epoch_order(41, seed=1, epoch=0, shuffle=True).tolist()
SPOILT = ORDER[21]


def spoilt(policy: str, steps: int = 5, value: float = float("nan"), **settings: Any) -> Any:
    source = {"name": "spoilt_points", "spoilt": [SPOILT], "value": value}
    return session("Exact", source=source, train={"steps": steps, "on_nonfinite": policy}, **settings)


each_strategy = pytest.mark.parametrize("strategy", [{}, OVERLAPPED], ids=["auto", "torch"])


def stop(rank: int, world_size: int, strategy: dict[str, Any]) -> list[str]:
    before = trained(rank, world_size, spoilt("skip", 2, strategy=strategy), "before", disk=Quick())
    said = []
    for name, every in (("saved", "1 step"), ("not saved", "never")):
        one = spoilt("stop", checkpoint={"every": every}, strategy=strategy)
        it = made(rank, world_size, one, name, disk=Quick())
        with started(it), pytest.raises(NotFinite) as ended:
            train(it)
        assert it.recorder.step == 2
        for parameter, expected in before.parameters.items():
            assert torch.equal(it.flow.module.get_parameter(parameter), expected), "of the step before"
        said.append(str(ended.value))
    return said


@each_strategy
def test_stop_names_rank_step_and_the_last_good_checkpoint_on_every_rank(workers, strategy):
    for said in workers(2, stop, strategy):
        assert said == [
            "the loss of rank 1 is NaN or infinite at step 3; last good checkpoint: step 2",
            "the loss of rank 1 is NaN or infinite at step 3; last good checkpoint: none yet",
        ]


def skip(rank: int, world_size: int, strategy: dict[str, Any]) -> Any:
    def end_of(name: str, *more: Any) -> Any:
        return trained(rank, world_size, spoilt("skip", *more, strategy=strategy), name, disk=Quick())

    before = end_of("before", 2)
    at_once = [end_of(str(value), 3, value) for value in (float("nan"), 1e999)]
    return before, at_once, end_of("after", 5)


@each_strategy
def test_skip_leaves_parameters_untouched_counts_an_event_and_goes_on(workers, strategy):
    everyone = workers(2, skip, strategy)
    for before, at_once, after in everyone:
        for one in at_once:
            assert math.isnan(one.losses[2])
            assert all(torch.equal(one.parameters[name], expected) for name, expected in before.parameters.items())
        assert (after.outcome, len(after.rows)) == ("finished", 5)
        for name, expected in everyone[0][2].parameters.items():
            assert torch.equal(after.parameters[name], expected)
            assert torch.isfinite(expected).all()
            assert torch.equal(expected, before.parameters[name]) is name.startswith("unused")
    assert [after.events("skipped") for *_, after in everyone] == [[{"ranks": [1]}], []], "said once, by rank 0"
