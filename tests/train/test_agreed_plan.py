"""Ranks that would send something different end in a sentence, before anything travels."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from _workers import joined
from train._training import OVERLAPPED
from volary.errors import RanksDiffer
from volary.exchange.choice.bucketing import plan
from volary.session.spec import Strategy as Settings
from volary.train.agreement.agreed_plan import compare_plan, describe
from volary.train.recording.recorder import Recorder
from volary.train.strategies.step_settings import StepSettings
from volary.train.strategies.strategy import build_strategy
from volary.train.strategies.strategy_state import StrategyState


class Network(nn.Module):
    """Two layers, in the order that is asked for."""

    def __init__(self, *, turned: bool = False, kind: torch.dtype = torch.float32, width: int = 4) -> None:
        super().__init__()
        for name in ("two", "one") if turned else ("one", "two"):
            setattr(self, name, nn.Linear(width, 4, dtype=kind))


ODD: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "bucket size": ({"bucket_mb": 20 / 2**20}, {}),
    "order": ({}, {"turned": True}),
    "type": ({}, {"kind": torch.float64}),
    "width": ({}, {"width": 5}),
    "frozen": ({}, {}),
    "order in memory": ({}, {}),
}


def build(rank: int, world_size: int, strategy: dict[str, Any]) -> dict[str, str]:
    said = {}
    for attempt, (name, (more, of)) in enumerate(ODD.items()):
        odd = rank == world_size - 1
        settings = Settings(workers=world_size, **{**strategy, **(more if odd else {})})
        module = Network(**(of if odd else {}))
        if odd and name == "frozen":
            module.two.weight.requires_grad_(requires_grad=False)
        if odd and name == "order in memory":
            module.two.weight = nn.Parameter(torch.zeros(4, 4).t())
        with pytest.raises(RanksDiffer) as refused:
            part = settings.partition.part(module, rank, world_size)
            build_strategy(
                settings, part, Recorder(rank), joined(attempt), None, state=StrategyState(), steps=StepSettings()
            )
        said[name] = str(refused.value)
    return said


@pytest.mark.parametrize("strategy", [{}, OVERLAPPED], ids=["auto", "torch"])
def test_plans_that_differ_are_refused_on_all_ranks_with_the_first_difference(workers, strategy):
    everyone = workers(3, build, strategy)
    assert everyone[0] == everyone[1] == everyone[2]
    whole = "bucket 0, values 0 to {} of two.bias (4,), two.weight (4, 4), one.bias (4,), one.weight (4, 4), float32"
    for name, text in everyone[0].items():
        first, second, *_ = text.splitlines()
        assert first == "ranks differ, so nothing was started:"
        assert second.startswith(f"  plan, number 0: rank 0, 1: {whole.format(56)}, as it is; rank 2: bucket 0, "), name
    assert "rank 2: bucket 0, values 0 to 20 of two.bias (4,), float32" in everyone[0]["bucket size"]
    assert "plan, number 9: rank 0, 1: absent; rank 2: bucket 3" in everyone[0]["bucket size"]
    assert "rank 2: bucket 0, values 0 to 56 of one.bias (4,), one.weight" in everyone[0]["order"]
    assert "float64" in everyone[0]["type"]
    assert "two.weight (4, 5)" in everyone[0]["width"]
    assert "of two.bias (4,), one.bias (4,), one.weight" in everyone[0]["frozen"]
    assert "of two.bias (4,), two.weight (4, 4) in memory as (1, 4), one.bias" in everyone[0]["order in memory"]


def agree_on_order(rank: int, world_size: int) -> str:
    chunks = describe(plan(list(Network().named_parameters()), 1e-6), 25)
    bulletin = joined().bulletin
    compare_plan(bulletin, "the same", chunks, [1, 0, 2, 3])
    with pytest.raises(RanksDiffer) as refused:
        compare_plan(bulletin, "another", chunks, [0, 1, 2, 3] if rank else [0, 2, 1, 3])
    return str(refused.value)


def test_an_order_that_differs_is_refused_with_its_first_difference(workers):
    first, second = workers(2, agree_on_order)
    assert first == second
    assert "number 0" not in first
    assert "  plan, number 1: rank 0: bucket 2, values 0 to 20 of one.bias (4,)" in first
