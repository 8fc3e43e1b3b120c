"""The best evaluation so far, and what a checkpoint keeps of it."""

import json

import msgspec

from volary.run.best import Best


def judged(values, *, higher_is_better):
    best = Best()
    return best, [best.judge(value, step, higher_is_better=higher_is_better) for step, value in enumerate(values)]


def test_what_is_better_is_noted_and_never_a_nan():
    best, better = judged((float("nan"), 0.5, 0.5, float("nan"), 0.6), higher_is_better=True)
    assert better == [False, True, False, False, True]
    assert (best.value, best.step, best.waited) == (0.6, 4, 0)
    assert judged((2.0, 3.0, 1.0), higher_is_better=False)[1] == [True, False, True]


def test_it_goes_on_from_a_checkpoint_as_workers_and_as_rosters_read_one():
    best, _ = judged((2.0, 3.0), higher_is_better=False)
    assert best.state() == {"value": 2.0, "step": 0, "waited": 1}
    other = Best()
    other.restore(best.state())
    assert other == msgspec.convert(json.loads(json.dumps(best.state())), Best) == best
