"""No progress: who is waited for, who is never blamed, and what it is that all wait for."""

from __future__ import annotations

from dataclasses import replace

import pytest

from driver._play import RULES, USED_TO_IT, Play, together
from volary.driver.watching.worker_status import FIRST_STEPS, KEPT_STEPS
from volary.run.verdict import Verdict


def test_worker_that_others_wait_for_is_warned_of_with_its_stack_and_given_up_minutes_later():
    play = Play()
    play.say(0, "exchange")
    play.say(1, "forward")
    play.go_on(10.5)
    assert (play.suspected, play.asked) == ([], [1])  # it is given a moment to say where it is
    play.say(1, "forward", progress=play.beats[1].progress, stack="File x, in loop")
    assert play.go_on(0.2) == []
    assert play.suspected == [(1, "stuck")]
    assert play.sentences == ["is alive but has made no progress for 11 s, in forward; rank 0 waits for it"]
    assert play.go_on(49) == []
    assert play.asked == [1, 1]  # what is shown at the end is not minutes old
    play.say(1, "forward", progress=play.beats[1].progress, stack="File x, in loop, later")
    (lost,) = play.go_on(1)
    assert (lost.rank, lost.kind) == (1, "stuck")
    assert lost.sentence == "is alive but has made no progress for 60 s, in forward; rank 0 waits for it"
    assert play.watch.workers[1].stack == "File x, in loop, later"


def test_worker_that_does_not_say_where_it_is_is_warned_of_all_the_same():
    play = Play()
    play.say(0, "exchange")
    play.go_on(12)
    assert play.suspected == [(1, "stuck")]


def test_forward_of_25_seconds_after_quick_steps_goes_on():
    play = Play(steps=20)
    play.say(0, "exchange")
    play.say(1, "forward")
    assert play.go_on(25) == []
    play.say(1, "backward")
    assert play.go_on(2) == []
    assert play.suspected == [(1, "stuck")]


@pytest.mark.parametrize("phase", ["forward", "between steps", "evaluate", "checkpoint", "starting"])
def test_one_worker_alone_is_never_given_up_for_want_of_progress(phase):
    play = Play(world_size=1)
    play.say(0, phase)
    assert play.go_on(700) == []
    assert play.suspected == [(0, "stuck")]
    assert play.sentences[0].endswith(f", in {phase}; nobody waits for it")


def test_nobody_is_given_up_while_nobody_waits():
    play = Play(world_size=3)
    for rank in range(3):
        play.say(rank, "between steps")
    assert play.go_on(700) == []


def test_time_runs_from_when_somebody_comes_to_wait():
    play = Play()
    play.say(0, "forward")
    play.say(1, "forward")
    play.go_on(500)
    play.say(0, "exchange")
    assert play.go_on(59) == []
    (lost,) = play.go_on(2)
    assert lost.rank == 1
    assert "has made no progress for 560 s" in lost.sentence


def test_worker_that_waits_is_never_blamed_however_slow_the_other_is_while_it_moves():
    play = Play()
    play.say(0, "exchange")
    play.say(1, "forward")
    for _ in range(30):
        assert play.go_on(55) == []
        play.say(1, "forward")
    assert {rank for rank, _ in play.suspected} == {1}


def test_all_that_are_waited_for_are_named_and_none_that_waits():
    play = Play(world_size=4)
    for rank, phase in enumerate(("exchange", "forward", "exchange", "backward")):
        play.say(rank, phase)
    lost = play.go_on(61)
    assert [(one.rank, one.kind) for one in lost] == [(1, "stuck"), (3, "stuck")]
    assert lost[0].sentence.endswith("in forward; ranks 0, 2 wait for it")


def test_worker_without_anything_to_do_waits_for_those_that_work():
    play = Play()  # as in a run with servers, at the end of an epoch
    play.say(0, "idle")
    play.say(1, "forward")
    (lost,) = play.go_on(61)
    assert lost.rank == 1


def test_nobody_counts_as_stuck_while_somebody_is_silent():
    play = Play()
    play.say(0, "forward")  # stands still since before rank 1 fell silent
    play.go_on(1)
    play.say(1, "forward")
    lost = play.go_on(30, silent=(1,))
    assert [(one.rank, one.kind) for one in lost] == [(1, "silent")]


def test_stack_of_a_standstill_that_is_over_is_forgotten():
    play = Play()
    play.say(0, "exchange")
    play.go_on(10.5)
    play.say(1, "forward", progress=play.beats[1].progress, stack="import torch")
    play.go_on(1)
    play.say(1, "backward")
    assert play.watch.workers[1].stack == ""
    play.go_on(11)
    assert play.asked == [1, 1]


def test_worker_that_does_not_come_is_missing_and_the_others_are_not_blamed_for_waiting():
    play = Play(come=1, steps=0)
    play.say(0, "exchange", step=0)
    assert play.go_on(119) == []
    (lost,) = play.go_on(2)
    assert (lost.rank, lost.kind, lost.sentence) == (1, "missing", "did not come within 120 s")


def test_start_that_others_wait_for_may_take_its_own_time():
    play = Play(steps=0, rules=replace(RULES, stuck_after_s=3))
    play.say(0, "exchange", step=0)
    play.say(1, "starting", step=0)
    assert play.go_on(119) == []
    (lost,) = play.go_on(2)
    assert (lost.rank, lost.kind) == (1, "stuck")


@pytest.mark.parametrize(("stuck_after_s", "bound_s"), [(3, 120), (600, 600)])
def test_first_step_of_a_life_may_take_as_long_as_the_start_or_as_any_other(stuck_after_s, bound_s):
    play = Play(steps=0, rules=replace(RULES, stuck_after_s=stuck_after_s))
    play.say(0, "exchange", step=500)  # no rows: no step was done in this attempt
    play.say(1, "forward", step=500)
    assert play.go_on(bound_s - 1) == []
    assert len(play.go_on(2)) == 1


def test_link_that_is_cut_between_hosts_is_told_within_seconds_without_blaming_anybodys_code():
    play = Play(hosts="ab")
    together(play, USED_TO_IT)
    play.say(0, "exchange", step=14)
    play.say(1, "exchange", step=13)
    (lost,) = play.go_on(10.5)
    assert (lost.rank, lost.kind) == (1, "cut")
    assert lost.sentence == ("waits in the exchange, like all others, for 10 s: a link between hosts may be cut (a, b)")
    assert play.asked == []


def test_slow_start_and_a_slow_moment_do_not_raise_the_bound_of_a_cut_link():
    play = Play(hosts="ab", steps=0)
    together(play, FIRST_STEPS, wait_s=60)
    together(play, USED_TO_IT)
    together(play, 1, wait_s=9)
    together(play, 20)
    assert play.watch.lost == []
    assert len(play.go_on(10.5)) == 1


def test_exchange_that_is_always_slow_is_given_five_times_that():
    play = Play(hosts="ab")
    together(play, FIRST_STEPS + 1)
    together(play, KEPT_STEPS, wait_s=8)
    assert play.go_on(31) == []
    assert len(play.go_on(3)) == 1


def test_time_of_a_cut_link_runs_from_when_the_last_one_came_to_wait():
    play = Play(hosts="ab")
    together(play, USED_TO_IT)
    play.say(0, "exchange")
    play.say(1, "forward")
    play.go_on(9)
    play.say(1, "exchange")  # rank 0 has stood still for 9 s, but only now they all wait
    assert play.go_on(4.5) == []
    assert play.suspected == []


def test_workers_of_one_machine_that_all_wait_are_slow_for_minutes_before_they_are_stuck():
    play = Play()
    together(play, USED_TO_IT)
    assert play.go_on(59) == []
    assert play.suspected == [(0, "stuck")]
    (lost,) = play.go_on(2)
    assert lost.sentence == "waits in the exchange, like all others, for 60 s"


def test_workers_of_one_machine_that_wait_in_different_steps_are_told_so():
    play = Play(rules=replace(RULES, own_loop=True))
    together(play, USED_TO_IT)
    play.say(0, "exchange", step=21)
    play.say(1, "exchange", step=19)
    (lost,) = play.go_on(61)
    assert lost.rank == 1
    assert lost.sentence.startswith(
        "waits in the exchange, like all others, for 60 s: they are at different steps (rank 0 in step 22, rank 1 in "
        "step 20); all workers must take the same number of steps"
    )


def test_servers_on_another_host_make_a_link_that_may_be_cut():
    play = Play(rules=replace(RULES, keeper_host="b"))
    together(play, USED_TO_IT)
    assert play.go_on(10.5)[0].kind == "cut"


def test_workers_that_have_nothing_to_do_wait_for_no_link():
    play = Play(hosts="ab")
    together(play, USED_TO_IT)
    play.say(0, "idle")
    play.say(1, "idle")  # the servers save
    assert play.go_on(59) == []


def test_worker_that_left_its_own_loop_early_is_named_and_the_one_that_waits_for_it_is_not():
    play = Play(rules=replace(RULES, own_loop=True))
    together(play, USED_TO_IT)
    play.say(0, "exchange", step=20)
    play.say(1, "between steps", step=20, bye=Verdict(rank=1, outcome="finished", step=20))
    assert play.go_on(9) == []
    (lost,) = play.go_on(2)
    assert (lost.rank, lost.kind) == (1, "left")
    assert lost.sentence == (
        "has left its training loop after step 20, and rank 0 waits in step 21: all workers must take the same number "
        "of steps: let worker.feed share the samples, or end every worker's loop after the same step"
    )


def test_worker_that_calls_backward_again_in_the_last_step_is_told_so():
    play = Play(rules=replace(RULES, own_loop=True))
    together(play, USED_TO_IT)
    play.say(0, "exchange", step=19)
    play.say(1, "between steps", step=20, bye=Verdict(rank=1, outcome="finished", step=20))
    (lost,) = play.go_on(11)
    assert lost.sentence == (
        "has left its training loop after step 20, and rank 0 waits in step 20: all workers must call backward() as "
        "often as each other in each step"
    )


def test_workers_that_wait_in_different_calls_are_named_with_what_each_is_in_within_seconds():
    play = Play(hosts="ab", rules=replace(RULES, own_loop=True))
    together(play, USED_TO_IT)
    play.say(0, "exchange", step=20, call="worker.mean")
    play.say(1, "exchange", step=20)
    assert play.go_on(9) == []
    (lost,) = play.go_on(2)
    assert lost.kind == "parted"
    assert lost.sentence == (
        "waits, like all others, for 10 s, and not for the same: rank 0 in worker.mean after step 20, rank 1 in its "
        "training of step 21; all workers must make the same calls in the same order"
    )


def test_worker_that_works_on_after_the_others_have_left_is_not_hurried():
    play = Play(rules=replace(RULES, own_loop=True))
    play.say(1, "between steps", bye=Verdict(rank=1, outcome="finished", step=3))
    play.say(0, "evaluate")
    assert play.go_on(700) == []


def test_link_that_carries_is_not_cut_however_slow_it_is_and_is_once_nothing_moves_any_more():
    play = Play(hosts="ab")
    together(play, USED_TO_IT, wait_s=0.1)
    for rank in (0, 1):
        play.say(rank, "exchange", step=USED_TO_IT, carries=rank == 0)
    assert play.go_on(900) == []
    assert play.suspected == []
    for rank in (0, 1):
        play.say(rank, "exchange", step=USED_TO_IT, progress=play.beats[rank].progress)
    (lost,) = play.go_on(11)
    assert lost.kind == "cut"


@pytest.mark.parametrize(("phase", "is_given_up"), [("checkpoint", False), ("starting", False), ("forward", True)])
def test_who_sends_a_checkpoint_or_receives_the_first_state_may_take_as_long_as_bytes_move(phase, is_given_up):
    play = Play(steps=0 if phase == "starting" else 5)
    play.say(0, "exchange")
    play.say(1, phase, carries=True)  # in the user's own code anything may move them
    assert bool(play.go_on(700)) == is_given_up
