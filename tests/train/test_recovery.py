"""A state in memory goes on as if nothing had broken, wherever each rank was; and workers hear who trains together."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from train._training import OVERLAPPED, looked_at, made, session, started, trained
from volary.errors import PeerLost
from volary.run.control.requests import ChangeMembers, ChangeRate, WriteCheckpoint
from volary.run.launch.members import GroupMembers
from volary.train.loop import train
from volary.train.recovery.member_news import MemberNews

AT = 7
DUE, BEHIND, NEITHER, PAUSED = (
    "after its update",
    "in the next step, where another rank has not updated yet",
    "in the next step",
    "between two, where all pause",
)
OWN_STEPS = [
    {"consistency": {"name": "local", "period": 3}},
    {"consistency": {"name": "local", "period": 2, "outer": {"name": "sgd", "lr": 0.7, "momentum": 0.9}}},
    {"consistency": {"name": "local", "period": 2, "fragments": 2}},
    {"consistency": {"name": "local", "period": 2, "fragments": 2, "alpha": 0.4}},
    {"consistency": {"name": "elastic", "period": 2}},
    {"consistency": {"name": "gossip", "period": 2}},
    {"consistency": {"name": "gossip", "graph": "pairs", "momentum": 0.3, "gamma": 0.8}},
]

QUICKLY = [{}, OWN_STEPS[1]]
LOSSES = [
    pytest.param(one, where, marks=() if one in QUICKLY else pytest.mark.slow)
    for one in ({}, OVERLAPPED, *OWN_STEPS)
    for where in (DUE, BEHIND, NEITHER, PAUSED)
    # a gossip mean with a partner is that worker's alone, and is not taken again
    if where != BEHIND or one.get("consistency", {}).get("name") != "gossip"
]


def broken(function: Callable[..., Any], call: int, *, after: bool) -> Callable[..., Any]:
    """The function, which breaks in this call of it, once it is done or before."""
    calls = 0

    def calling(*arguments: Any, **settings: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == call and not after:
            raise PeerLost("broken")
        found = function(*arguments, **settings)
        if calls == call:
            raise PeerLost("broken")
        return found

    return calling


def one(strategy: dict[str, Any], *, due: bool, lr: float = 0.02) -> Any:
    """A session of 12 contributions. due: after number AT all meet again, to compare and to evaluate."""
    period = period_of(strategy)
    return session(
        "Dropping",
        source={"name": "points", "samples": 54},
        optimizer={"name": "adam", "lr": lr},
        train={"steps": 12 * period, "compare_replicas": "1 step" if due else "never"},
        evaluate={"every": f"{AT * period} steps" if due else f"{5 * period} steps"},
        strategy={"recover": "memory", **strategy},
    )


def period_of(strategy: dict[str, Any]) -> int:
    """Steps of a contribution."""
    model = strategy.get("consistency", {})
    return int(model.get("period", 1)) // int(model.get("fragments", 1))


def goes_on(rank: int, world_size: int, where: str, strategy: dict[str, Any]) -> tuple[Any, Any, Any]:
    due = where == DUE
    whole = trained(rank, world_size, one(strategy, due=due), "whole")
    change = [msgspec.to_builtins(ChangeMembers(0))] if where == PAUSED else []
    last = AT * period_of(strategy)
    it = made(rank, world_size, one(strategy, due=due), "broken", asked=lambda step: change if step >= last else [])
    lockstep, replica = it.coordinator, it.replica
    if due and lockstep.compare is None:  # replicas are not equal
        replica.consensus = broken(replica.consensus, 1, after=False)
    elif due:
        lockstep.compare = broken(lockstep.compare, AT, after=False)
    elif where == PAUSED:
        pass
    elif rank == 0 or where == NEITHER:  # it has made contribution AT, and drawn and read for the next one
        replica.vote = broken(replica.vote, AT + 1, after=False)
    else:  # to which this one has given all that it had
        replica.agree = broken(replica.agree, AT, after=True)
    with started(it), pytest.raises(PeerLost, match=r"broken|members of the run change"):
        train(it)
    kept = lockstep.kept()
    again = made(rank, world_size, one(strategy, due=due), "broken")
    if rank == 0:
        again.flow.module.load_state_dict(it.flow.module.state_dict())
    again.coordinator.take_over(kept)
    with started(again):
        rest = looked_at(again, train(again))
    return whole, looked_at(it), rest


@pytest.mark.parametrize(("strategy", "where"), LOSSES)
def test_what_is_kept_goes_on_bit_for_bit_with_the_newest_state_and_what_was_due(workers, strategy, where):
    everyone = workers(2, goes_on, where, strategy)
    period = period_of(strategy)
    for whole, first, rest in everyone:
        for name, parameter in whole.parameters.items():
            assert parameter.equal(rest.parameters[name]), name
        done = {row.step: row.loss for row in first.rows + rest.rows}
        assert set(range(1, 12 * period + 1)) - done.keys() <= {AT * period}
        assert all(whole.losses[step - 1] == loss for step, loss in done.items())
        assert first.metrics + rest.metrics == whole.metrics


def asked(step: int) -> list[Any]:
    """A checkpoint and another learning rate, from step 3 on."""
    return [msgspec.to_builtins(one) for one in (WriteCheckpoint(), ChangeRate(0.005))] if step >= 3 else []


def asked_and_goes_on(rank: int, world_size: int, where: str) -> tuple[Any, Any]:
    told = asked if rank == 0 else lambda _: []
    it = made(rank, world_size, one({}, due=False), asked=told)
    if where == DUE:
        it.coordinator.saver.save = broken(it.coordinator.saver.save, 1, after=False)
    else:
        it.coordinator.rank.replica.vote = broken(it.coordinator.rank.replica.vote, AT, after=False)
    with started(it), pytest.raises(PeerLost, match="broken"):
        train(it)
    kept = it.coordinator.kept()
    again = made(rank, world_size, one({}, due=False, lr=0.005), asked=told)  # as it is stored in the run by then
    if rank == 0:
        again.flow.module.load_state_dict(it.flow.module.state_dict())
    again.coordinator.take_over(kept)
    with started(again):
        return looked_at(it), looked_at(again, train(again))


@pytest.mark.parametrize("where", [DUE, NEITHER])
def test_what_a_run_was_asked_to_do_is_done_once_or_after_the_next_step_if_the_loss_came_before(workers, where):
    (first, rest), _ = workers(2, asked_and_goes_on, where)
    assert [row.lr for row in rest.rows] == [0.005] * len(rest.rows)
    change = {"setting": "optimizer.lr", "was": 0.02, "now": 0.005}
    saved = [one["step"] for one in rest.said if one.get("event") == "checkpoint"]
    assert first.events("changed") == [change]
    if where == DUE:
        assert rest.events("changed") == [change | {"was": 0.005}]
        assert saved[0] == rest.rows[0].step, "the checkpoint that the loss came before"
    else:
        assert rest.events("changed") == []
        assert set(saved) <= {10, 12}  # with an evaluation, and the last


def test_members_that_are_left_keep_their_order():
    assert GroupMembers((0, 1, 2, 3)).without({1, 7}) == GroupMembers((0, 2, 3), 1)


def test_spares_take_the_places_of_those_that_are_lost_and_follow_those_that_are_left():
    members = GroupMembers((0, 1, 2))
    assert members.without({1}, spares=[3, 4]) == GroupMembers((0, 2, 3), 1)
    assert members.without({0, 1}, spares=[3]) == GroupMembers((2, 3), 1)
    assert members.without({0, 1, 2}, spares=[3]) == GroupMembers((), 1)  # nobody has a state to train on from


def test_a_spare_waits_until_it_is_named_or_the_run_is_over():
    news, found = MemberNews(10), []
    waiting = threading.Thread(target=lambda: found.append(news.naming(2, lambda: False)))
    waiting.start()
    news.change([1], 1)
    news.change([1, 2], 2)
    waiting.join(30)
    assert found == [GroupMembers((1, 2), 2)]
    assert news.naming(7, lambda: True) is None


def test_who_waits_for_a_lost_worker_is_interrupted_before_it_hears_who_is_left():
    news, seen = MemberNews(10), []
    first = GroupMembers((0, 1, 2))
    with news.interrupting(first, lambda: seen.append(news.newest.number)):
        news.change([0, 2], 1)
        news.change([0, 2], 1)  # said again
    assert seen == [0]
    assert news.after(first, PeerLost("x")) == GroupMembers((0, 2), 1)
    news.change([0], 2)
    assert seen == [0], "nobody waits any more"
    with pytest.raises(PeerLost, match="is lost"), news.interrupting(GroupMembers((0, 2), 1), lambda: None):
        pass


def test_a_broken_exchange_of_which_the_driver_says_nothing_ends_the_worker():
    news = MemberNews(10)
    news.bound_s = 0.01
    with pytest.raises(PeerLost, match="the exchange broke"):
        news.after(GroupMembers((0, 1)), PeerLost("the exchange broke"))


def test_who_waits_for_news_wakes_as_they_come():
    news, found = MemberNews(10), []
    waiting = threading.Thread(target=lambda: found.append(news.after(GroupMembers((0, 1)), PeerLost("x"))))
    waiting.start()
    news.change([1], 1)
    waiting.join(30)
    assert found == [GroupMembers((1,), 1)]


def test_a_broken_exchange_waits_for_news_as_long_as_another_driver_may_take_a_lost_one_s_place():
    news, found = MemberNews(10), []
    news.bound_s, news.driver_missing = 0.01, True
    first, lost = GroupMembers((0, 1)), PeerLost("the exchange broke")
    waiting = threading.Thread(target=lambda: found.append(news.after(first, lost)))
    waiting.start()
    waiting.join(0.6)  # two looks longer than the bound
    assert waiting.is_alive()
    news.change([0, 1], 5)
    waiting.join(30)
    assert found == [GroupMembers((0, 1), 5)]
