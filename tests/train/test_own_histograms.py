"""Histograms in a loop of one's own, and a step behind: the weights and updates of one device, and nothing changes."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any

import pytest
import torch
from torch import nn

from train import _own_loops
from train._own_served import own_served, scheduled
from train._training import OVERLAPPED, made, trained
from train._wide import SGD, wide
from train.test_histograms import histograms
from train.test_own_loop import call

LOOK = "3 steps"  # the first look, in step 3, is never left out for the time that it takes
CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "clipped": ("clipping", {}),
    "early": ("plain", {"early_update": True, "strategy": OVERLAPPED}),
}


def looked(rank: int, world_size: int) -> dict[str, Any]:
    found = {}
    for attempt, (name, (loop, how)) in enumerate(CASES.items()):
        value, recorder = call(getattr(_own_loops, loop), rank, world_size, attempt, histograms=LOOK, **how)
        found[name] = value["state"], recorder.events
    return found


def magnitudes(said: list[dict[str, Any]], step: int = 3) -> dict[tuple[str, str], list[float]]:
    """By kind and name: the least, the greatest, and the mean magnitude, as it was after this step."""
    found = [one["histograms"] for one in said if one.get("step") == step and "histograms" in one]
    return {(kind, name): [low, high, magnitude] for (one,) in [found] for kind, name, low, high, magnitude, _ in one}


def test_in_a_loop_of_ones_own_workers_see_what_one_worker_sees(workers):
    alone = looked(0, 1)
    unlooked, _ = call(_own_loops.clipping, 0, 1, 0, histograms="never")
    first, second = workers(2, looked)
    for name in CASES:
        (state, said), (_, one_said) = first[name], alone[name]
        assert [one for one in second[name][1] if "histograms" in one] == [], "one worker looks for all"
        found, expected = magnitudes(said), magnitudes(one_said)
        kinds = {"weight", "update"} | ({"gradient"} if name != "early" else set())
        assert set(found) == {(kind, parameter) for kind in kinds for parameter in state}
        for key, values in found.items():
            assert values == pytest.approx(expected[key], rel=1e-5, abs=1e-9), (name, key)
    for parameter, values in alone["clipped"][0].items():
        assert torch.equal(values, unlooked["state"][parameter]), "nothing changes"


def two_networks(worker: Any) -> None:
    """Two models with an optimiser each, of which the second takes a step after the first."""
    torch.manual_seed(1)
    pairs = [
        (model, torch.optim.SGD(model.parameters(), lr))
        for model, lr in ((nn.Linear(5, 3), 1.0), (nn.Linear(5, 3), 0.1))
    ]
    for model, optimizer in pairs:
        worker.distribute(model, optimizer)
    for _ in range(4):
        for model, optimizer in pairs:
            optimizer.zero_grad()
            model(torch.ones(2, 5)).sum().backward()
            optimizer.step()


def test_of_two_networks_each_optimisers_own_update_is_seen():
    _, recorder = call(two_networks, 0, 1, 0, histograms=LOOK)
    found: dict[tuple[str, str], float] = {}
    for one in recorder.events:
        if "histograms" in one:
            assert one["step"] == 3
            found |= {(kind, name): magnitude for kind, name, _, _, magnitude, _ in one["histograms"]}
    assert found["update", "0.weight"] == pytest.approx(2.0)
    assert found["update", "1.weight"] == pytest.approx(0.2)
    assert found["gradient", "0.weight"] == found["gradient", "1.weight"] == pytest.approx(2.0)


def served(rank: int, world_size: int) -> Any:
    return own_served(
        rank, world_size, scheduled, {"workers": 2, "exchange": {"name": "server", "servers": 1}}, look=LOOK
    )


def test_in_a_loop_of_ones_own_over_servers_weights_and_updates_are_those_of_one_worker(workers):
    _, alone = call(scheduled, 0, 1, 0, histograms=LOOK)
    found, expected = magnitudes(workers(3, served)[0].worker_said), magnitudes(alone.events)
    assert {kind for kind, _ in found} == {"weight", "update", "gradient"}
    for key, values in found.items():
        if key[0] != "gradient":  # a worker's own, of its share
            assert values == pytest.approx(expected[key], rel=1e-5, abs=1e-9), key


def behind(rank: int, world_size: int) -> dict[str, Any]:
    def of(every: str) -> Any:
        return trained(
            rank, world_size, wide(64, 4, "never", every, exchange={"behind": True}), every.replace(" ", "-")
        )

    return {"with": of(LOOK), "without": of("never")}


def test_a_step_behind_the_update_is_that_of_the_gradients_before_and_training_is_as_without(workers):
    first, second = workers(2, behind)
    for found in (first, second):
        assert found["with"].losses == found["without"].losses
        for name, values in found["with"].parameters.items():
            assert torch.equal(values, found["without"].parameters[name])
    assert histograms(second["with"]) == {}
    found = magnitudes(first["with"].said)
    assert {kind for kind, _ in found} == {"weight", "update", "gradient"}
    for (kind, name), values in found.items():
        if kind != "gradient":  # a worker's own, of its share
            assert values == pytest.approx(late()[kind, name], rel=1e-5, abs=1e-9), (kind, name)


@cache
def late() -> dict[tuple[str, str], list[float]]:
    """Step 3 on one device, if each gradient is applied a step late."""
    one = wide(64, 4, "never")
    it = made(0, 1, replace(one, strategy=replace(one.strategy, workers=1)), "late")
    named = dict(it.flow.module.named_parameters())
    rule = torch.optim.SGD(named.values(), **{key: SGD[key] for key in ("lr", "momentum")})
    waiting: list[torch.Tensor] = []
    for batch, _ in zip(it.coordinator.rank.data.feed, range(3), strict=False):
        gradients = torch.autograd.grad(it.flow(batch.inputs, batch.targets), list(named.values()))
        before = {name: parameter.detach().clone() for name, parameter in named.items()}
        for parameter, gradient in zip(named.values(), waiting, strict=bool(waiting)):
            parameter.grad = gradient
        rule.step()
        waiting = list(gradients)
    found = {("weight", name): parameter.detach() for name, parameter in named.items()}
    found |= {("update", name): parameter.detach() - before[name] for name, parameter in named.items()}
    return {key: [float(one.min()), float(one.max()), float(one.abs().mean())] for key, one in found.items()}
