"""Promises of every consistency model, by listing the room."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from volary.consistency import ROOM
from volary.consistency._base import Action, Consistency, Push
from volary.errors import SettingError
from volary.server.protocol.updates import Contribution

DOCS = Path(__file__).parents[2] / "docs"


@dataclass(frozen=True, kw_only=True)
class SaysNothing(Consistency):
    pass


def test_a_model_that_says_nothing_of_itself_is_bsp():
    bsp, plain = ROOM.load("bsp")(), SaysNothing()
    members = [name for name in dir(Consistency) if not name.startswith("_") and not callable(getattr(bsp, name))]
    assert {name: getattr(plain, name) for name in members} == {name: getattr(bsp, name) for name in members}
    assert plain.at(0, 0.0) == bsp.at(0, 0.0) == Action(updates=False, push=Push.GRADIENT)
    assert type(plain.closer(2)) is type(bsp.closer(2))


@pytest.mark.parametrize("name", ROOM.names())
def test_its_defaults_make_a_model_and_a_closer_for_any_number_of_workers(name):
    model = ROOM.load(name)()
    assert isinstance(model, Consistency)
    assert model.steps() >= 1
    assert model.fetch_every >= 1
    for workers in (1, 2, 7):
        model.closer(workers)


@pytest.mark.parametrize("name", ROOM.names())
@settings(max_examples=30)
@given(workers=st.integers(1, 5), rounds=st.integers(1, 6), data=st.data())
def test_every_contribution_of_workers_that_all_finish_is_in_one_update_or_named_once(name, workers, rounds, data):
    closer = ROOM.load(name)().closer(workers)
    for worker in range(workers):
        closer.joined(worker, 0.0)
    steps, begun = [], []

    def settled() -> list[Contribution]:
        return [each for step in steps for each in (*step.contributions, *step.dropped, *step.left_out)]

    left = dict.fromkeys(range(workers), rounds)
    while left:
        worker = data.draw(st.sampled_from(sorted(left)))
        clock = closer.next_clock(worker, 0.0)
        if clock is None:  # it has to wait for those who are behind, who may go on
            waiting = [other for other in left if other != worker]
            assert waiting, "the last one is never made to wait"
            worker = min(waiting, key=lambda other: sum(each.worker == other for each in begun))
            clock = closer.next_clock(worker, 0.0)
            assert clock is not None, "whoever is furthest behind is never made to wait"
        contribution = Contribution(worker, clock)
        begun.append(contribution)
        for tell in (
            lambda one=contribution: closer.computed(one, 8, True, 0.0),
            lambda one=contribution: closer.done(one, 8, 0.0),
        ):
            if contribution not in settled():
                steps += tell()
        left[worker] -= 1
        if not left[worker]:
            del left[worker]
            steps += closer.left(worker, 0.0)
    assert sorted(settled()) == sorted(begun)


GOSSIP = ROOM.load("gossip")
MODELS = {name: ROOM.load(name)() for name in ROOM.names()}
MODELS |= {f"gossip, {graph}": GOSSIP(graph=graph) for graph in ("ring", "random", "pairs")}
MODELS["gossip, in periods"] = GOSSIP(period=2)


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("workers", range(2, 10))
def test_what_workers_push_reaches_all_others_and_all_at_once_where_they_are_to_be_equal(name, workers):
    model, everybody = MODELS[name], torch.full((workers, workers), 1 / workers)
    reached = torch.eye(workers)  # what a worker has, as shares of what each had in the beginning
    for step in range(100):
        sources = [{worker, *model.partners(step, worker, workers)} for worker in range(workers)]
        shares = torch.stack([torch.eye(workers)[list(one)].mean(0) for one in sources])
        reached = shares @ reached
        torch.testing.assert_close(reached.sum(0), torch.ones(workers))  # the mean of all stays
        if model.equal:
            torch.testing.assert_close(reached, everybody)
    torch.testing.assert_close(reached, everybody)


@pytest.mark.parametrize("momentum", [0.0, 0.5])
@pytest.mark.parametrize(("graph", "most"), [("pairs", [2.0, 1.5]), ("random", [2.0, 1.5]), ("ring", [1.5, 2.25])])
def test_copies_of_gossip_come_together_with_every_gamma_that_is_accepted_and_drift_apart_beyond(graph, most, momentum):
    accepted = most[momentum > 0]
    assert distances(GOSSIP(graph=graph), momentum, 0.8 * accepted) < 1e-6
    GOSSIP(graph=graph, momentum=momentum, gamma=0.999 * accepted)
    assert distances(GOSSIP(graph=graph), momentum, 1.3 * accepted) > 1e3
    with pytest.raises(SettingError, match=f"copies would drift apart; accepted: above 0, below {accepted:g}"):
        GOSSIP(graph=graph, momentum=momentum, gamma=1.001 * accepted)


def distances(model, momentum: float, gamma: float, workers: int = 16) -> float:
    """The largest distance to the mean of all after 200 means in which nobody learnt (NoLoCo's recursion)."""
    slow = torch.randn(workers, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    steps = torch.zeros_like(slow)
    for turn in range(200):
        sources = [[worker, *model.partners(turn, worker, workers)] for worker in range(workers)]
        steps = momentum * steps - gamma * (slow - torch.stack([slow[one].mean() for one in sources]))
        slow = slow + steps
    return (slow - slow.mean()).abs().max().item()


@pytest.mark.parametrize("steps", [1, 2, 3, 7, 8, 9, 2**62])
@pytest.mark.parametrize("name", ["local", "elastic", "gossip", "hogwild"])
def test_a_period_is_as_long_as_it_says_and_may_outlast_any_run(name, steps):
    model = ROOM.load(name)(period=steps)
    assert model.steps() == steps
    assert model.at(steps - 1, 0.0).push is model.pushes is not Push.NOTHING


def test_a_period_of_seconds_may_outlast_any_run():
    assert ROOM.load("local")(seconds=1e300).steps(step_s=0.1) > 10**300


@pytest.mark.parametrize("name", ROOM.names())
def test_the_docs_have_its_row(name):
    assert f"`{name}`" in (DOCS / "strategy.md").read_text()
    if ROOM.load(name)().needs_server:
        assert re.search(rf"^\| `{name}", (DOCS / "server.md").read_text(), re.MULTILINE)
