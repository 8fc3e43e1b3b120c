"""The two tables that are expected to be quickest are compared in truth: made-up steps, no processes, no clock."""

from __future__ import annotations

import math
import random

import pytest

from volary.train.strategies.comparison import EACH, FIRST_LOOK, QUAD, Comparison
from volary.train.strategies.strategy_state import STRATEGY, StrategyState, renamed


def compared(expected_s: list[float], step_s) -> tuple[Comparison, list[int]]:
    """Go on until it is over. step_s: of a table's place and a step's number. Returns which was in use, too."""
    comparison = Comparison([{"w": str(n)} for n in range(len(expected_s))], [[]] * len(expected_s), expected_s)
    used = []
    while not comparison.over:
        comparison = Comparison(**comparison.state())  # as a resumed run would find it
        used.append(comparison.now)
        comparison.add(step_s(comparison.now, len(used)))
        if comparison.asks:
            comparison.take(comparison.verdict())
        assert len(used) <= QUAD, "it ends"
    return comparison, used


def on_a_noisy_machine(seed: int, truth_s: list[float], slows_by: float):
    """Steps scatter by 5 %, one of ten is disturbed by up to twice its time, and the machine slows down by and by."""
    draws = random.Random(seed)

    def step_s(place: int, step: int) -> float:
        disturbed = 1 + draws.random() if draws.random() < 0.1 else 1.0
        return truth_s[place] * math.exp(draws.gauss(0, 0.05)) * disturbed * (1 + slows_by * step / QUAD)

    return step_s


@pytest.mark.parametrize("slows_by", [-0.3, 0.0, 0.3])
@pytest.mark.parametrize(
    ("expected_s", "truth_s"),
    [
        ([1.0, 1.1], [1.0, 1.1]),  # as expected
        ([1.0, 1.1], [1.2, 1.0]),  # the rival is the quicker one
        ([0.8, 0.9], [1.4, 1.0]),  # work was taken for far less than it is
        ([0.6, 1.0], [1.73, 1.0]),
    ],
)
def test_what_is_quickest_in_truth_stays_whatever_was_expected(expected_s, truth_s, slows_by):
    seeds = range(200)
    ends = [compared(expected_s, on_a_noisy_machine(seed, truth_s, slows_by))[0] for seed in seeds]
    right = sum(truth_s[one.best] <= 1.03 * min(truth_s) for one in ends)
    assert right >= 0.95 * len(seeds)
    assert max(truth_s[one.best] for one in ends) <= max(1.25, truth_s[0]) * min(truth_s)


def test_a_rival_that_is_plainly_slower_has_two_steps_that_count():
    used = compared([1.0, 1.1], lambda place, _: 1.0 + 0.15 * place)[1]
    assert used == [0] * EACH + [1] * (FIRST_LOOK - EACH)


def test_a_difference_that_is_plain_or_was_expected_takes_a_turn_each_and_another_one_two():
    def plain(place: int, _: int) -> float:
        return 1.0 - 0.5 * place

    def close(place: int, _: int) -> float:
        return 1.0 - 0.05 * place

    def plain_but_for_a_disturbed_step(place: int, step: int) -> float:
        return {EACH: 0.25, 2 * EACH: 2.5}.get(step, plain(place, step))

    assert compared([1.0, 1.1], plain)[1] == [0] * EACH + [1] * EACH
    assert compared([1.0, 1.1], plain_but_for_a_disturbed_step)[1] == [0] * EACH + [1] * EACH
    assert compared([1.0, 1.1], lambda place, _: 1.0 + 0.05 * place)[1] == [0] * EACH + [1] * EACH
    used = compared([1.0, 1.1], close)[1]
    assert (len(used), used.index(1), used.count(1)) == (QUAD, EACH, QUAD - 2 * EACH)


def test_what_is_expected_to_be_much_slower_has_no_step_unless_steps_take_as_long_as_that():
    as_expected, used = compared([1.0, 5.0], lambda place, _: [1.0, 5.0][place])
    assert (as_expected.best, used) == (0, [0] * EACH)
    slower, used = compared([1.0, 1.5], lambda place, _: [1.7, 1.5][place])
    assert (slower.best, used.count(1) > 0) == (1, True)


def test_a_checkpoint_has_how_far_it_is_and_one_of_an_earlier_version_goes_on_with_what_was_in_use():
    first, again = StrategyState(), StrategyState()
    first.representations, first.comparison = (
        {"w": "onebit"},
        Comparison([{"w": "1"}, {"w": "2"}], [[], []], [1.0, 1.1]),
    )
    first.comparison.add(0.5)
    again.restore(first.state())
    assert (again.representations, again.comparison) == (first.representations, first.comparison)
    among_three = {"representations": [{}] * 3, "rows": [[]] * 3, "expected_s": [1.0] * 3, "step_s": [0.5]}
    again.restore({"ways": {"w": "onebit"}, "comparison": among_three | {"best": 0, "rival": 1}})
    assert (again.representations, again.comparison) == ({"w": "onebit"}, None)
    assert renamed({"feed": {}, "ways": [first.state()]}) == {"feed": {}, STRATEGY: [first.state()]}
