"""Which gradients are exchanged when a network is not simple, and what ranks agree on with them."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import nn

from _workers import joined
from train._training import OVERLAPPED, Trained, session, trained
from volary.errors import SettingError
from volary.session.spec import Strategy as Settings
from volary.train.agreement.first_state import DeferredTensors
from volary.train.agreement.votes import Agreed, Vote
from volary.train.recording.recorder import Recorder
from volary.train.replica import Voting
from volary.train.strategies.step_settings import StepSettings
from volary.train.strategies.strategy import build_strategy
from volary.train.strategies.strategy_state import StrategyState

ROUNDING = 1e-5  # the network has a parameter of 32 bits


def odd(**settings: Any) -> Any:
    rule = {"name": "sgd", "lr": 0.2, "momentum": 0.9, "weight_decay": 0.05}
    data = {"name": "points", "samples": 40}  # every worker has samples in every step
    return session("Odd", source=data, optimizer=rule, train={"steps": 20, "compare_replicas": "1 step"}, **settings)


STRATEGIES: dict[str, dict[str, Any]] = {
    "one bucket": {"bucket_mb": 25.0},
    "a bucket each": {"bucket_mb": 1e-4},
    "one bucket, overlapped": {**OVERLAPPED, "bucket_mb": 25.0},
    "a bucket each, overlapped": {**OVERLAPPED, "bucket_mb": 1e-4},
}


def train_odd(rank: int, world_size: int) -> dict[str, Trained]:
    return {name: trained(rank, world_size, odd(strategy=one), name) for name, one in STRATEGIES.items()}


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Trained:
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path_factory.mktemp("alone"))
        return train_odd(0, 1)["one bucket"]


@pytest.mark.parametrize("world_size", [2, pytest.param(3, marks=pytest.mark.slow)])
def test_frozen_shared_unused_and_changing_parameters_end_as_on_one_device(workers, alone, world_size):
    everyone = workers(world_size, train_odd)
    for found in everyone:
        for name in found:
            for parameter, expected in alone.parameters.items():
                torch.testing.assert_close(found[name].parameters[parameter], expected, rtol=0, atol=ROUNDING)
    for text in [text for found in everyone[1:] for one in found.values() for text in one.events("warning")]:
        pytest.fail(f"said by another rank than 0: {text}")
    for name in STRATEGIES:
        assert_each_is_named_once(everyone[0][name], world_size)


def assert_each_is_named_once(found: Trained, world_size: int) -> None:
    said = [one["text"] for one in found.events("warning")]
    told = [name for text in said for name in text.partition(" had no gradient ")[0].split(", ")]
    assert len(told) == len(set(told)), "a parameter is named once"
    assert {f"{part}.{kind}" for part in ("unused", "sometimes") for kind in ("weight", "bias")} <= set(told)
    assert {name.rpartition(".")[0] for name in told} == {"unused", "sometimes", "in_turn.0", "in_turn.1", "in_turn.2"}
    pairs = [text.partition(" had no gradient ")[::2] for text in said]
    assert any("unused.weight" in names and where == "on any worker; not updated" for names, where in pairs)
    partly = "on 1 of 2 workers; counted as zero there"
    assert any("sometimes.weight" in names and where == partly for names, where in pairs) or world_size > 2


def test_an_unused_parameter_is_touched_by_neither_momentum_nor_decay(alone, tmp_path):
    from train._training import made

    before = dict(made(0, 1, odd(), tmp_path / "c").flow.module.named_parameters())
    for name, expected in before.items():
        untouched = name.startswith(("unused", "frozen"))
        assert torch.equal(alone.parameters[name], expected) is untouched, name


def strategy_of(module: nn.Module, rank: int, world_size: int, attempt: int = 0, **more: Any) -> Voting:
    settings = Settings(workers=world_size, **{"bucket_mb": 25.0, **more.pop("settings", {})})
    state, steps = StrategyState(), StepSettings(**more)
    part = settings.partition.part(module, rank, world_size)
    strategy = build_strategy(settings, part, Recorder(rank), joined(attempt), None, state=state, steps=steps)
    strategy.start(DeferredTensors())
    return strategy


def vote(rank: int, world_size: int, settings: dict[str, Any]) -> list[Agreed]:
    module = nn.Linear(2, 1)
    strategy = strategy_of(module, rank, world_size, settings=settings)
    agreed = []
    for loss, ending in ((0.5, False), (1.0, rank == 1), (math.nan if rank == 2 else 1.0, False), (-math.inf, False)):
        strategy.vote(Vote(loss, busy=rank != 1, ending=ending))
        module(torch.ones(1, 2)).sum().backward()
        agreed.append(strategy.agree())
    strategy.close()
    return agreed


@pytest.mark.parametrize("settings", [{}, OVERLAPPED], ids=["auto", "torch"])
def test_all_ranks_read_the_same_loss_ending_and_ranks_without_a_finite_loss(workers, settings):
    everyone = workers(3, vote, settings)
    for agreed in everyone:
        assert [one.loss for one in agreed[:2]] == [1.5, 3.0]
        assert [one.ending for one in agreed] == [False, True, False, False]
        assert [one.busy for one in agreed] == [2] * 4
        assert [one.not_finite for one in agreed] == [(), (), (2,), (0, 1, 2)]
        assert all(math.isnan(one.loss) for one in agreed[2:])


class Mixed(nn.Module):
    """A parameter of each type."""

    TYPES = (torch.float32, torch.bfloat16, torch.float64, torch.float16, torch.complex64, torch.float32)

    def __init__(self) -> None:
        super().__init__()
        self.own = nn.ParameterList(nn.Parameter(torch.ones(3, dtype=kind)) for kind in self.TYPES)

    def loss(self, factor: float) -> torch.Tensor:
        products = [each * factor for each in self.own]
        return torch.stack([(one.real if one.is_complex() else one).sum().double() for one in products]).sum()


def exchange_mixed(rank: int, world_size: int) -> list[list[list[complex]]]:
    found = []
    for attempt, settings in enumerate(({}, OVERLAPPED)):
        module = Mixed()
        more = {**settings, "bucket_mb": 1e-6}
        strategy = strategy_of(module, rank, world_size, attempt, settings=more, weight=lambda: 0.5)
        strategy.vote(Vote(0.25, busy=True, ending=False))
        module.loss(2.0 + 2 * rank).backward()
        assert strategy.agree().loss == 0.5
        found.append([each.grad.to(torch.complex64).tolist() for each in module.own])
        strategy.close()
    return found


def test_parameters_of_any_type_are_summed_each_in_its_own(workers):
    for routes in workers(2, exchange_mixed):
        assert routes == [[[3.0, 3.0, 3.0]] * len(Mixed.TYPES)] * 2


def unfreeze(rank: int, world_size: int) -> str:
    module = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 1))
    module[0].requires_grad_(requires_grad=False)
    strategy = strategy_of(module, rank, world_size)
    module[0].requires_grad_(requires_grad=True)
    strategy.vote(Vote(0.0, busy=True, ending=False))
    module(torch.ones(1, 2)).sum().backward()
    with pytest.raises(SettingError) as refused:
        strategy.agree()
    strategy.close()
    return str(refused.value)


def test_a_parameter_that_is_unfrozen_later_is_refused_and_not_left_to_drift(workers):
    assert (
        workers(2, unfreeze) == ["0.weight was frozen when training began; accepted: trainable then, frozen later"] * 2
    )
