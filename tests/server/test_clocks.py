"""A set of clocks is a set, in as much memory as it has runs."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from volary.server.protocol.clocks import ClockSet


@given(st.lists(st.integers(0, 30)))
def test_it_has_what_was_put_in_and_nothing_else(clocks):
    kept = ClockSet()
    for number, clock in enumerate(clocks):
        kept.add(clock)
        there = set(clocks[: number + 1])
        assert [clock for clock in range(32) if clock in kept] == sorted(there)
        assert kept.runs == len([clock for clock in there if clock - 1 not in there])


def test_clocks_in_order_take_the_memory_of_one():
    kept = ClockSet()
    for clock in range(1000):
        kept.add(clock)
    assert kept.runs == 1
