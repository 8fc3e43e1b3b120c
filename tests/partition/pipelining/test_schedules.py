"""Schedules: each micro-batch passes each stage once in each direction, in an order that can be carried out."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from volary.partition.pipelining.schedules import SCHEDULES, StagePass, Timetable, timetable

RANKS, MICRO_BATCHES = st.integers(1, 6), st.integers(1, 14)
NAMES = st.sampled_from(sorted(SCHEDULES))


def expected(name: str, ranks: int, micro_batches: int) -> Counter[StagePass]:
    rules = SCHEDULES[name]
    works = ("forward", "inputs", "weights") if rules.split else ("forward", "backward")
    stages = range(ranks * rules.stages_each)
    return Counter(
        StagePass(work, stage, number) for work in works for stage in stages for number in range(micro_batches)
    )


def carried_out(table: Timetable, stages: int) -> int:
    """How many actions ranks get done that do theirs in order, each waiting for what it needs, however long."""
    done: set[StagePass] = set()
    left = [list(actions) for actions in table.actions]
    moved = True
    while moved:
        moved = False
        for actions in left:
            while actions and needs(actions[0], stages) <= done:
                done.add(actions.pop(0))
                moved = True
    assert not any(left), "a wait is left at the end"
    return len(done)


def needs(action: StagePass, stages: int) -> set[StagePass]:
    if action.work == "forward":
        return {StagePass("forward", action.stage - 1, action.micro_batch)} - {
            StagePass("forward", -1, action.micro_batch)
        }
    if action.work == "weights":
        return {StagePass("inputs", action.stage, action.micro_batch)}
    own = {StagePass("forward", action.stage, action.micro_batch)}
    behind = {StagePass(action.work, action.stage + 1, action.micro_batch)} if action.stage + 1 < stages else set()
    return own | behind


@given(NAMES, RANKS, MICRO_BATCHES)
def test_every_micro_batch_passes_each_stage_once_and_no_wait_is_left(name, ranks, micro_batches):
    table = timetable(SCHEDULES[name], ranks, micro_batches)
    assert Counter(action for actions in table.actions for action in actions) == expected(name, ranks, micro_batches)
    for rank, actions in enumerate(table.actions):
        assert all(action.stage % ranks == rank for action in actions)
    assert carried_out(table, ranks * SCHEDULES[name].stages_each) == sum(map(len, table.actions))


@given(NAMES, RANKS, MICRO_BATCHES)
def test_gradients_are_added_in_the_order_of_the_micro_batches(name, ranks, micro_batches):
    for actions in timetable(SCHEDULES[name], ranks, micro_batches).actions:
        for stage in {action.stage for action in actions}:
            for work in ("forward", "backward", "inputs", "weights"):
                numbers = [one.micro_batch for one in actions if (one.work, one.stage) == (work, stage)]
                assert numbers == sorted(numbers)


@given(st.sampled_from(["gpipe", "1f1b"]), RANKS, MICRO_BATCHES)
def test_the_bubble_is_the_formula_s(name, ranks, micro_batches):
    found = timetable(SCHEDULES[name], ranks, micro_batches)
    assert found.bubble == pytest.approx((ranks - 1) / (micro_batches + ranks - 1))


@pytest.mark.parametrize(("ranks", "micro_batches"), [(2, 4), (3, 6), (4, 8), (4, 16)])
def test_interleaved_and_zero_bubble_wait_as_little_as_their_papers_say(ranks, micro_batches):
    interleaved, zero = (timetable(SCHEDULES[name], ranks, micro_batches) for name in ("interleaved", "zero_bubble"))
    assert interleaved.bubble == pytest.approx((ranks - 1) / (2 * micro_batches + ranks - 1))
    assert zero.bubble == pytest.approx((ranks - 1) / (3 * micro_batches + ranks - 1))


@given(st.integers(1, 6), st.integers(1, 14))
def test_1f1b_holds_the_activations_of_as_many_micro_batches_as_stages_follow(ranks, micro_batches):
    for rank, actions in enumerate(timetable(SCHEDULES["1f1b"], ranks, micro_batches).actions):
        held = most = 0
        for action in actions:
            held += 1 if action.work == "forward" else -1
            most = max(most, held)
        assert most <= ranks - rank
