"""Bulk synchronous: nothing is read before everybody's contribution is in it."""

from __future__ import annotations

import pytest

from exchange._ranks import Turns


def wait_for_all(rank: int, world_size: int, route: str) -> list[float]:
    turns = Turns(route)
    read = []
    for turn in range(2):
        turns.contribute(rank + 1.0 + turn, 10.0)
        turns.release()
        for slot in turns.buckets.slots:
            turns.exchange.pull(slot.gate)
            read.append(turns.agreed(slot.chunks[0].index))
        turns.exchange.settle()
    turns.exchange.close()
    return read


@pytest.mark.parametrize("route", ["auto", "torch"])
def test_what_is_read_holds_every_worker_s_contribution(workers, route):
    assert workers(3, wait_for_all, route) == [[6.0, 30.0, 9.0, 30.0]] * 3
