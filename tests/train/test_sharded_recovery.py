"""Workers that keep shares: a lost one's is had from the copy that another has, wherever each of them was."""

from __future__ import annotations

from typing import Any

import pytest

from train._training import Quick, looked_at, made, session, started, trained
from train.test_recovery import broken
from volary.errors import PeerLost
from volary.train.loop import train
from volary.train.recovery.kept_state import KeptState
from volary.train.recovery.recovery_point import common_point

AT, STEPS = 7, 12
RING, SHARED = ({"name": "allreduce", "route": route} for route in ("ring", "shared"))
DUE, IN_VOTE, AFTER_VOTE = "after an update", "in the next step", "as sums arrive"


WAYS = [(RING, 1), (SHARED, 2), (RING, 3)]
QUICKLY = [(RING, 1, DUE), (SHARED, 2, AFTER_VOTE), (RING, 3, IN_VOTE)]
CASES = [
    pytest.param(*way, where, marks=() if (*way, where) in QUICKLY else pytest.mark.slow)
    for way in WAYS
    for where in (DUE, IN_VOTE, AFTER_VOTE)
]


def one(exchange: Any, level: int, **more: Any) -> Any:
    settings = {"optimizer": {"name": "adam", "lr": 0.02}, "train": {"steps": STEPS}, **more}
    return session(
        "Exact",
        source={"name": "points", "samples": 54},
        evaluate={"every": "5 steps"},
        strategy={"recover": "memory", "exchange": exchange, "partition": {"name": "sharded", "level": level}},
        **settings,
    )


def replaced(rank: int, world_size: int, where: str, settings: Any) -> tuple[Any, Any, Any]:
    """The last rank is lost, and another takes its place, which has nothing."""
    whole = trained(rank, world_size, settings, "whole", disk=Quick())
    it = made(rank, world_size, settings, "broken", disk=Quick())
    lockstep, replica = it.coordinator, it.replica
    if where == DUE:
        lockstep._due = broken(lockstep._due, AT, after=False)
    elif where == IN_VOTE:
        replica.vote = broken(replica.vote, AT + 1, after=False)
    else:
        replica.apply = broken(replica.apply, AT + 1, after=rank == 0)
    with started(it), pytest.raises(PeerLost, match="broken"):
        train(it)
    kept = lockstep.kept()
    moment = common_point({0: kept.offers()}) if rank == 0 else None
    again = made(rank, world_size, settings, "broken", disk=Quick())
    again.coordinator.take_over(kept.at(moment) if rank == 0 else KeptState.nothing())
    with started(again):
        rest = looked_at(again, train(again))
        again.coordinator.rank.group.bulletin.share("looked at", 1)
    return whole, looked_at(it), rest


@pytest.mark.parametrize(("exchange", "level", "where"), CASES)
def test_a_run_goes_on_bit_for_bit_from_the_copy_of_a_lost_workers_share(workers, exchange, level, where):
    for whole, _, rest in workers(2, replaced, where, one(exchange, level)):
        for name, parameter in whole.parameters.items():
            assert parameter.equal(rest.parameters[name]), name
        begun = rest.rows[0].step
        assert AT - 1 <= begun <= AT + 1
        assert [row.loss for row in rest.rows] == whole.losses[begun - 1 :]
