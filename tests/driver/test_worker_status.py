"""Bounds follow recent steps: they say which duration is usual."""

from __future__ import annotations

from dataclasses import replace

from driver._play import RULES, USED_TO_IT, Play
from volary.driver.watching.worker_status import FIRST_STEPS, KEPT_STEPS, Usual


def test_phase_that_is_usually_slow_is_worth_a_warning_after_five_times_that():
    play = Play(steps=FIRST_STEPS, rules=replace(RULES, stuck_after_s=600))
    for step in range(USED_TO_IT):
        play.say(1, "forward", step=step)
        play.say(0, "exchange", step=step)
        play.go_on(4)
        play.say(1, "backward", step=step)
        play.go_on(0.2)
    play.say(1, "forward")
    play.go_on(19)
    assert play.suspected == []
    play.go_on(3)
    assert play.suspected == [(1, "stuck")]
    play.say(1, "backward")  # usually quick
    play.go_on(12)
    assert play.suspected == [(1, "stuck"), (1, "stuck")]


def test_what_is_usual_is_a_quantile_of_recent_steps_that_a_few_slow_ones_do_not_change():
    usual = Usual()
    assert usual.seconds is None
    for step in range(KEPT_STEPS):
        usual.add(step, 20.0 if step in (3, 17) else 0.1)
        usual.add(step, 0.05)  # of a step the longest counts
    assert usual.seconds == 0.1
    for step in range(KEPT_STEPS, KEPT_STEPS + 8):
        usual.add(step, 20.0)
    assert usual.seconds == 20.0
    for step in range(100, 100 + KEPT_STEPS):
        usual.add(step, 0.1)
    assert usual.seconds == 0.1
