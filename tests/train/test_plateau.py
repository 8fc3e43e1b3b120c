"""A learning rate that is lowered when evaluations get no better: as torch's, and resumed in the middle of it."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.optim.lr_scheduler import ReduceLROnPlateau

from server._play import FIRST_SERVER, Play
from train._served import served
from train._training import Quick, session, trained
from volary.errors import SettingError
from volary.server.protocol.to_members import Close, Learn, Rate
from volary.server.roster.plateau import Plateau
from volary.session import Session
from volary.train.schedules.chain import ScheduleChain
from volary.train.schedules.constant import Constant
from volary.train.schedules.plateau import ReduceOnPlateau

FIGURES = st.lists(st.floats(0.1, 2).map(lambda one: round(one, 1)), min_size=1, max_size=30)
OFTEN = {"name": "plateau", "by": "loss", "gamma": 0.5, "patience": 0, "threshold": 0.3, "cooldown": 1}


@settings(max_examples=30)
@given(FIGURES, st.booleans(), st.integers(0, 3), st.integers(0, 3), st.sampled_from([0.0, 0.1]))
def test_factors_are_those_of_torch(values, higher_is_better, patience, cooldown, floor):
    rule = ReduceOnPlateau(gamma=0.5, patience=patience, cooldown=cooldown, floor=floor, threshold=0.1)
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=1.0)
    torchs = ReduceLROnPlateau(
        optimizer,
        "max" if higher_is_better else "min",
        factor=0.5,
        patience=patience,
        cooldown=cooldown,
        min_lr=floor,
        threshold=0.1,
        eps=0.0,
    )
    plateau = Plateau()
    for value in values:
        before, mine = optimizer.param_groups[0]["lr"], Plateau(**plateau.state())
        torchs.step(value)
        changed = plateau.judge(rule, {"f": value}, "f", higher_is_better=higher_is_better)
        assert plateau.factor == optimizer.param_groups[0]["lr"]
        assert changed == (before != plateau.factor)
        mine.judge(rule, {"f": value}, "f", higher_is_better=higher_is_better)  # as a resumed run
        assert mine == plateau


def test_an_evaluation_without_a_number_is_no_better_than_any():
    plateau, rule = Plateau(), ReduceOnPlateau(by="loss", gamma=0.5, patience=0)
    for loss, factor in ((float("nan"), 0.5), (1.0, 0.5), (float("nan"), 0.25)):
        plateau.judge(rule, {"accuracy": 1.0, "loss": loss}, "accuracy", higher_is_better=True)
        assert plateau.factor == factor


# By the roster


def play(**more: Any) -> Play:
    """Its evaluations get worse: each lowers the rate, but for the first."""
    rule = ReduceOnPlateau(gamma=0.5, patience=0)
    terms = {"evaluate_every": lambda _: 2, "checkpoint_every": lambda _: 2, "plateau": rule}
    it = Play("bsp", workers=2, samples=64, validation=10, **terms, **more)
    it.value = iter(range(10, 0, -1))
    return it


def test_all_workers_wait_for_the_evaluation_that_decides_their_rate():
    it = play()
    for _ in range(2):
        for rank in (0, 1):
            it.ask(rank)
            it.ask(rank)  # ahead
            it.turn(rank)
    it.ask(0)
    it.ask(1)
    assert [len(it.heard(rank, Learn)) for rank in (0, 1)] == [2, 2]
    it.to_the_end()
    said = [one for one in it.told[FIRST_SERVER] if isinstance(one, Close | Rate)]
    kinds = "".join(type(one).__name__[0] for one in said)
    assert kinds == "CCCCRCCRCC", "the fifth update is the first with another rate"
    rates = it.heard(FIRST_SERVER, Rate)
    assert [one.factor for one in rates] == [0.5, 0.25]
    assert [one.samples for one in rates] == [32, 48]
    assert it.heard(0, Rate) == rates


def test_a_resumed_run_begins_with_the_rate_that_evaluations_left():
    it = play()
    it.to_the_end()
    committed = {step: state for step, _, state, *_ in it.shelf.committed}
    assert [committed[step]["plateau"]["factor"] for step in (2, 4, 6)] == [1.0, 0.5, 0.25]
    again = play(restored=(4, committed[4]))
    (first,) = again.heard(FIRST_SERVER, Rate)
    assert (first.samples < 32, first.factor) == (True, 0.5)


# In runs


def exact(**more: Any) -> Session:
    every = {"every": "3 steps"}
    return session(
        "Exact", schedule=OFTEN, train={"steps": 20}, evaluate=every, checkpoint={"every": "5 steps"}, **more
    )


def rates(rows: list[Any]) -> list[float]:
    return [row.lr for row in rows]


def test_a_run_stopped_between_two_evaluations_is_resumed_bit_for_bit(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    whole = trained(0, 1, exact(), "whole", disk=Quick())
    trained(0, 1, exact(), "stopped", disk=Quick(), until=lambda step: step == 10)
    after = trained(0, 1, exact(), "stopped", disk=Quick())
    assert rates(after.rows) == rates(whole.rows)[10:]
    falls = [number for number, (one, two) in enumerate(pairwise(rates(whole.rows)), 1) if two < one]
    assert falls[0] < 10 < falls[-1]
    assert all(number % 3 == 0 for number in falls), "after an evaluation"
    assert all(torch.equal(after.parameters[name], one) for name, one in whole.parameters.items())


SERVERS = {"workers": 1, "exchange": {"name": "server", "servers": 1}}


def over_servers(rank: int, world_size: int) -> tuple[list[float], dict[str, torch.Tensor]] | None:
    for name, until in (("whole", None), ("stopped", {0: 10}), ("stopped", None)):
        kept = served(rank, world_size, exact(strategy=SERVERS), name, until)
        if kept is not None and name == "whole":
            whole = kept
    if kept is None:
        return None
    assert rates(kept.rows) == rates(whole.rows)[-len(kept.rows) :]
    assert 5 < len(kept.rows) < 12
    assert all(torch.equal(kept.parameters[name], one) for name, one in whole.parameters.items())
    return rates(whole.rows), whole.parameters


@pytest.mark.slow  # that the roster makes all wait is shown without processes
def test_over_servers_it_is_the_same_and_resumed_bit_for_bit(workers, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    alone = trained(0, 1, exact(), "alone", disk=Quick())
    of_worker, _ = workers(2, over_servers)
    assert of_worker[0] == rates(alone.rows)
    for name, values in alone.parameters.items():
        torch.testing.assert_close(of_worker[1][name], values, rtol=0, atol=1e-6)


# Refusals


def test_what_cannot_go_by_evaluations_is_refused():
    with pytest.raises(SettingError, match="which goes by evaluations, and"):
        session("Exact", schedule="plateau")
    with pytest.raises(SettingError, match="parts has plateau, which goes by the evaluations of the whole run"):
        ScheduleChain(parts=(Constant(), ReduceOnPlateau()), steps=(5,))
