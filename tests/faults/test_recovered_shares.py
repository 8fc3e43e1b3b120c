"""`strategy.recover: memory` where workers keep shares: one is lost, and another has the copy of its share."""

from __future__ import annotations

import random
import signal
import time

import pytest

from faults._running import VOLARY, events, last_step, learnt, outcome, running, session, state
from faults.test_members import leaves, told
from faults.test_recovered import MEMORY, STEPS, recovered, step_of_recovery

ADAM = ["optimizer={name: adam, lr: 0.01}", "checkpoint.every=never"]


def sharded(level=1):
    return [MEMORY, f"strategy.partition={{name: sharded, level: {level}}}", *ADAM]


@pytest.mark.parametrize(("route", "level"), [("ring", 2)])
def test_a_run_of_shares_goes_on_without_the_first_of_three_workers(launch, route, level):
    run = launch("train", session(steps=60, workers=3, pace_s=0.01, route=route), *sharded(level))
    at = run.wait_for_step(20)
    run.kill(rank=0)
    step = step_of_recovery(run)
    ended = run.ended()
    assert (ended.status, state(run.directory), last_step(run.directory)) == (0, "finished", 60), run.text()
    assert [data for _, data in recovered(run)] == [{"workers": 2, "lost": [0], "source": "memory"}]
    assert step >= at - 2


@pytest.mark.slow  # trains three times
@pytest.mark.parametrize(("route", "level"), [("auto", 1), ("ring", 1), ("ring", 3), ("auto", 2)])
def test_it_equals_a_run_that_was_told_to_go_on_without_the_last_worker(launch, route, level):
    run = launch("train", session(steps=STEPS, workers=3, pace_s=0.01, route=route), *sharded(level))
    run.wait_for_step(25)
    run.kill(rank=2)
    step = step_of_recovery(run)
    assert run.ended().status == 0, run.text()
    told = launch("train", "session.yaml", *sharded(level), f"train.steps={step}", "run.name=told", name="told")
    assert told.ended().status == 0, told.text()
    told = launch("resume", "told", f"train.steps={STEPS}", "strategy.workers=2", name="told")
    assert told.ended().status == 0, told.text()
    assert outcome(run.directory).weights == outcome(told.directory).weights


@pytest.mark.slow  # trains for seconds
def test_a_worker_and_the_holder_of_its_copy_that_are_lost_together_end_the_run_by_name(launch):
    run = launch("train", session(workers=4, pace_s=0.01, route="ring"), *sharded())
    run.wait_for_step(20)
    run.kill(rank=1)
    run.kill(rank=2)
    ended = run.ended()
    assert ended.status == 4
    words = "ranks 1 and 2 are lost together, and nobody else has the share of the optimiser's state and of parameters"
    assert f"{words} that rank 1 kept" in ended.err, run.text()


@pytest.mark.slow  # trains for seconds
def test_two_that_hold_no_copies_of_each_other_may_be_lost_at_once_and_then_the_others_one_by_one(launch):
    run = launch("train", session(steps=200, workers=4, pace_s=0.01, route="ring"), *sharded())
    at = run.wait_for_step(20)
    run.kill(rank=0)
    run.kill(rank=2)
    run.wait_until(lambda: recovered(run) and last_step(run.directory) > recovered(run)[-1][0] + at)
    run.kill(rank=1)
    assert run.ended().status == 0, run.text()
    assert recovered(run)[-1][1]["workers"] == 1 and last_step(run.directory) == 200


@pytest.mark.slow  # trains for seconds
@pytest.mark.parametrize("seed", range(3))
def test_another_one_may_be_lost_while_the_others_meet_again(launch, seed):
    draw = random.Random(seed)
    run = launch("train", session(steps=200, workers=4, pace_s=0.01), *sharded(draw.randrange(1, 4)))
    run.wait_for_step(20)
    first = draw.randrange(4)
    run.kill_as_others_meet(first, (first + 2) % 4, draw)  # neither has the other's copy
    assert run.ended().status == 0, run.text()
    assert {one.rank for one in events(run.directory, "lost")} == {first, (first + 2) % 4}
    assert last_step(run.directory) == 200


@pytest.mark.slow  # trains for seconds
def test_another_driver_takes_over_with_shares_although_a_worker_is_lost_with_the_first_one(launch):
    waits = "strategy.wait_for_driver_s=120"
    run = launch("train", session(steps=120, workers=3, pace_s=0.03, route="ring"), *sharded(2), waits)
    run.wait_for_step(20)
    run.kill(rank=1)
    run.process.kill()
    new = launch("attach", "--drive", "it")
    ended = new.ended()
    assert (ended.status, last_step(run.directory)) == (0, 120), new.text()
    assert recovered(run)[-1][1] == {"workers": 2, "lost": [1], "source": "memory"}


@pytest.mark.slow  # waits until a silent worker counts as lost
@pytest.mark.parametrize("route", ["auto", "ring"])
def test_a_stopped_worker_s_share_is_had_from_its_copy(launch, route):
    soon = {"suspect_after_s": 1, "give_up_after_s": 2}
    run = launch("train", session(steps=STEPS, workers=3, pace_s=0.02, route=route, **soon), *sharded())
    run.wait_for_step(20)
    run.kill(rank=1, number=signal.SIGSTOP)
    assert run.ended().status == 0, run.text()
    assert [data["lost"] for _, data in recovered(run)] == [[1]]


@pytest.mark.slow  # trains for seconds
@pytest.mark.parametrize("seed", range(6))
def test_a_worker_is_lost_at_any_moment_of_a_step_or_a_save(launch, seed):
    draw = random.Random(seed)
    settings = sharded(draw.randrange(1, 4)) + ["checkpoint.every=1 steps"] * draw.randrange(2)
    run = launch("train", session(steps=STEPS, workers=3, route=draw.choice(["ring", "auto"])), *settings)
    run.wait_for_step(5)
    time.sleep(draw.uniform(0, 0.2))  # no condition: any moment is a case
    run.kill(rank=draw.randrange(3))
    assert run.ended().status == 0, run.text()
    assert last_step(run.directory) == STEPS


@pytest.mark.slow  # trains for seconds
def test_a_spare_worker_takes_the_place_of_one_that_kept_a_share(launch):
    run = launch("train", session(steps=200, workers=2, pace_s=0.01), *sharded(), "strategy.spares=1")
    run.wait_for_step(20)
    run.wait_until(lambda: events(run.directory, "spare"))
    run.kill(rank=0)
    assert run.ended().status == 0, run.text()
    assert recovered(run)[-1][1] == {"workers": 2, "lost": [0], "spares": [2], "source": "memory"}


@pytest.mark.slow  # trains for seconds
def test_what_a_codec_had_left_out_is_named_as_lost(launch):
    run = launch("train", session(steps=60, workers=3, pace_s=0.01, route="ring"), *sharded(), "strategy.codec=onebit")
    run.wait_for_step(20)
    run.kill(rank=1)
    ended = run.ended()
    assert ended.status == 0, run.text()
    assert "what codecs had left out of earlier gradients of rank 1 is lost" in ended.out + ended.err


@pytest.mark.slow  # trains three times
@pytest.mark.parametrize("level", [1, 3])
def test_a_run_whose_last_worker_leaves_equals_one_that_was_told_to_go_on_without_it(launch, level):
    run = launch("train", session(steps=300, workers=3, pace_s=0.02, route="ring"), *sharded(level))
    run.wait_for_step(20)
    left = leaves(run, 2)
    assert run.ended().status == 0, run.text()
    assert outcome(run.directory).weights == told(launch, left, 2, 300, sharded(level))


@pytest.mark.slow  # trains for seconds
def test_two_neighbours_leave_at_once_and_another_worker_joins(launch):
    run = launch("train", session(steps=2000, workers=4, pace_s=0.01, route="ring"), *sharded())
    run.wait_for_step(20)
    with running(*VOLARY, "leave", "it", "1") as first, running(*VOLARY, "leave", "it", "2") as second:
        assert (first.ended().status, second.ended().status) == (0, 0), run.text()
    with running(*VOLARY, "join", "it") as joining:
        run.wait_until(lambda: learnt(run, 4))
        run.process.send_signal(signal.SIGINT)
        assert run.ended().status == 130, run.text()
        assert joining.ended().status == 0
    assert recovered(run)[-1][1] == {"workers": 3, "lost": [], "joined": [4], "source": "memory"}
