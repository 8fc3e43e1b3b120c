"""`strategy.recover: memory`: a worker is lost, and the others train on from what they have in memory."""

from __future__ import annotations

import random
import signal
import time

import pytest

from faults._running import events, last_step, outcome, session, state
from volary.run.checkpoints import Checkpoints
from volary.run.database.reader import RunReader

STEPS = 80
MEMORY = "strategy.recover=memory"


def recovered(run):
    """The events of groups that have met again, each with the step that it goes on from."""
    return [(one.step, one.data) for one in events(run.directory, "recovered")]


def step_of_recovery(run, number=1):
    run.wait_until(lambda: len(recovered(run)) >= number)
    return recovered(run)[number - 1][0]


def test_the_others_train_on_from_memory_when_the_first_of_three_workers_is_killed(launch):
    run = launch("train", session(steps=60, workers=3, pace_s=0.01), MEMORY, "checkpoint.every=never")
    at = run.wait_for_step(20)
    killed = run.kill(rank=0)
    step = step_of_recovery(run)
    print(f"from kill to training on: {time.monotonic() - killed:.2f} s")
    assert at <= step <= at + 40
    ended = run.ended()
    assert (ended.status, state(run.directory), last_step(run.directory)) == (0, "finished", 60), run.text()
    (lost,) = events(run.directory, "lost")
    assert (lost.rank, lost.data["reason"]) == (0, "was killed by SIGKILL")
    assert [data for _, data in recovered(run)] == [{"workers": 2, "lost": [0], "source": "memory"}]
    with RunReader(run.directory) as reader:
        done = {rank: [row.step for row in reader.steps(rank=rank)] for rank in range(3)}
    assert max(done[0]) <= step + 1
    for rank in (1, 2):  # at most the step in flight is done again; its row may be missing where it was not
        assert done[rank][-1] == 60
        assert set(range(1, 61)) - set(done[rank]) <= {step}


@pytest.mark.slow  # trains three times
@pytest.mark.parametrize(
    ("route", "more"),
    [("auto", []), ("ring", []), ("torch", ["train.clip_norm=1"]), ("ring", ["optimizer=adamw", "train.accumulate=2"])],
)
def test_a_run_that_lost_its_last_worker_equals_one_that_was_told_to_go_on_without_it(launch, route, more):
    settings = [MEMORY, *more]
    run = launch("train", session(steps=STEPS, workers=3, pace_s=0.01, route=route), *settings)
    run.wait_for_step(25)
    run.kill(rank=2)
    step = step_of_recovery(run)
    assert run.ended().status == 0, run.text()
    told = launch("train", "session.yaml", *settings, f"train.steps={step}", "run.name=told", name="told")
    assert told.ended().status == 0, told.text()
    told = launch("resume", "told", f"train.steps={STEPS}", "strategy.workers=2", name="told")
    assert told.ended().status == 0, told.text()
    assert outcome(run.directory).weights == outcome(told.directory).weights


@pytest.mark.slow  # trains for seconds
@pytest.mark.parametrize("codec", ["topk", "onebit", "powersgd", "auto", "factors"])
def test_every_codec_goes_on_without_a_worker(launch, codec):
    wide = ["network={layers: [{linear: {outputs: 128}}, relu: {}, {linear: {outputs: classes}}]}"]
    run = launch("train", session(steps=STEPS, workers=3, route="ring"), MEMORY, *wide, f"strategy.codec={codec}")
    run.wait_for_step(20)
    run.kill(rank=1)
    assert run.ended().status == 0, run.text()
    assert [data["source"] for _, data in recovered(run)] == ["memory"]


LOCAL = "{name: local, period: 5, outer: {name: sgd, lr: 0.7, momentum: 0.9, nesterov: true}}"
MODELS = [LOCAL, "{name: local, period: 4, fragments: 2}", "{name: elastic, period: 3}", "{name: gossip, period: 2}"]


def assert_each_sample_once(run, lost):
    """Every step has the samples of its batch. lost: ranks, each with the step up to which it took part: its last rows
    may be missing.
    """
    with RunReader(run.directory) as reader:
        rows = list(reader.steps())
    assert all(row.step <= lost.get(row.rank, row.step) for row in rows)
    for step in range(1, last_step(run.directory) + 1):
        learnt = {row.rank: row.samples for row in rows if row.step == step}
        batch = 33 if step % 8 else 25  # of 256 samples
        missing = [rank for rank, last in lost.items() if step <= last and rank not in learnt]
        untold = batch - sum(learnt.values())
        assert 0 < untold <= 17 * len(missing) if missing else not untold


@pytest.mark.slow  # trains for seconds
@pytest.mark.parametrize("model", MODELS)
def test_with_steps_of_their_own_the_others_make_the_round_under_way_again_and_no_sample_is_lost_or_used_twice(
    launch, model
):
    run = launch("train", session(steps=STEPS, workers=3, pace_s=0.01, consistency=model), MEMORY)
    run.wait_for_step(25)
    run.kill(rank=0)
    step = step_of_recovery(run)
    ended = run.ended()
    assert (ended.status, state(run.directory), last_step(run.directory)) == (0, "finished", STEPS), run.text()
    assert [data for _, data in recovered(run)] == [{"workers": 2, "lost": [0], "source": "memory"}]
    assert_each_sample_once(run, lost={0: step})


@pytest.mark.slow  # trains three times
@pytest.mark.parametrize("model", ["local", LOCAL])
def test_a_run_of_local_steps_equals_one_that_was_told_to_make_the_change_at_the_same_round(launch, model):
    run = launch("train", session(steps=STEPS, workers=3, pace_s=0.01, consistency=model), MEMORY)
    run.wait_for_step(25)
    run.kill(rank=2)
    step = step_of_recovery(run)
    assert run.ended().status == 0, run.text()
    told = launch("train", "session.yaml", MEMORY, f"train.steps={step}", "run.name=told", name="told")
    assert told.ended().status == 0, told.text()
    told = launch("resume", "told", f"train.steps={STEPS}", "strategy.workers=2", name="told")
    assert told.ended().status == 0, told.text()
    assert outcome(run.directory).weights == outcome(told.directory).weights


@pytest.mark.slow  # waits until a silent worker counts as lost
@pytest.mark.parametrize("model", [LOCAL, "gossip"])
def test_a_worker_that_stops_between_two_rounds_is_missed_within_the_bound(launch, model):
    soon = {"suspect_after_s": 1, "give_up_after_s": 2}
    run = launch("train", session(steps=STEPS, workers=3, pace_s=0.02, consistency=model, **soon), MEMORY)
    run.wait_for_step(20)
    run.kill(rank=1, number=signal.SIGSTOP)
    assert run.ended().status == 0, run.text()
    (lost,) = events(run.directory, "lost")
    assert lost.rank == 1 and "silent" in lost.data["reason"]
    assert [data["lost"] for _, data in recovered(run)] == [[1]]


@pytest.mark.slow  # trains for seconds
@pytest.mark.parametrize("model", [LOCAL, "gossip", "elastic"])
def test_the_last_one_of_workers_with_steps_of_their_own_trains_alone(launch, model):
    run = launch("train", session(steps=200, workers=3, pace_s=0.01, consistency=model), MEMORY)
    at = run.wait_for_step(20)
    run.kill(rank=0)
    run.wait_until(lambda: recovered(run) and last_step(run.directory) > recovered(run)[-1][0] + at)
    run.kill(rank=1)
    assert run.ended().status == 0, run.text()
    assert recovered(run)[-1][1]["workers"] == 1
    assert_each_sample_once(run, {rank: step for step, data in recovered(run) for rank in data["lost"]})


@pytest.mark.slow  # waits until a silent worker counts as lost
@pytest.mark.parametrize("route", ["auto", "torch"])
def test_a_stopped_worker_is_missed_within_the_bound_and_cannot_come_back(launch, route):
    soon = {"suspect_after_s": 1, "give_up_after_s": 2}
    run = launch("train", session(steps=STEPS, workers=3, pace_s=0.02, route=route, **soon), MEMORY)
    run.wait_for_step(20)
    run.kill(rank=1, number=signal.SIGSTOP)
    assert run.ended().status == 0, run.text()
    (lost,) = events(run.directory, "lost")
    assert lost.rank == 1 and "silent" in lost.data["reason"]
    assert [data["lost"] for _, data in recovered(run)] == [[1]]


@pytest.mark.slow  # trains for seconds
def test_all_but_one_may_be_lost_one_after_the_other_and_two_at_once(launch):
    run = launch("train", session(steps=200, workers=4, pace_s=0.01), MEMORY)
    at = run.wait_for_step(20)
    run.kill(rank=1)
    run.kill(rank=3)
    run.wait_until(lambda: recovered(run) and last_step(run.directory) > recovered(run)[-1][0] + at)
    run.kill(rank=0)
    assert run.ended().status == 0, run.text()
    assert {rank for _, data in recovered(run) for rank in data["lost"]} == {0, 1, 3}
    assert recovered(run)[-1][1]["workers"] == 1


@pytest.mark.slow  # trains for seconds
@pytest.mark.parametrize("seed", range(4))
def test_a_loss_while_the_others_meet_again_is_recovered_from_as_well(launch, seed):
    draw = random.Random(seed)
    run = launch(
        "train", session(steps=200, workers=4, pace_s=0.01, route=draw.choice(["ring", "torch", "auto"])), MEMORY
    )
    run.wait_for_step(20)
    first, second = draw.sample(range(4), 2)
    run.kill_as_others_meet(first, second, draw)
    assert run.ended().status == 0, run.text()
    assert {one.rank for one in events(run.directory, "lost")} == {first, second}


@pytest.mark.slow  # trains for seconds
def test_a_run_without_a_step_yet_begins_again_with_the_workers_that_are_left(launch):
    run = launch("train", session(steps=40, workers=3, fault="os._exit", at=1, ranks=(2,)), MEMORY)
    assert run.ended().status == 0, run.text()
    assert [data["lost"] for _, data in recovered(run)] == [[2]]


@pytest.mark.slow  # trains for seconds
def test_a_resumed_run_has_its_lost_workers_again(launch):
    run = launch("train", session(steps=60, workers=3, pace_s=0.01), MEMORY)
    run.wait_for_step(25)
    run.kill(rank=0)
    run.wait_until(lambda: recovered(run))
    run.process.send_signal(signal.SIGINT)
    assert run.ended().status == 130, run.text()
    assert state(run.directory) == "stopped"
    again = launch("resume", "it")
    again.wait_for_step(45)
    assert again.ended().status == 0, again.text()
    with RunReader(again.directory) as reader:
        assert {row.rank for row in reader.steps() if row.step > 50} == {0, 1, 2}


@pytest.mark.slow  # trains for seconds
def test_an_error_of_the_user_s_own_code_still_ends_the_run(launch):
    run = launch("train", session(steps=40, workers=3, fault="raise", at=9), MEMORY)
    ended = run.ended()
    assert ended.status == 3
    assert "boom in user code" in ended.err
    assert recovered(run) == []


def test_a_spare_worker_takes_the_place_of_the_one_that_is_killed_and_the_run_ends_with_it(launch):
    spare = [MEMORY, "strategy.spares=1", "checkpoint.every=never"]
    run = launch("train", session(steps=100, workers=2, pace_s=0.01), *spare)
    run.wait_for_step(20)
    run.wait_until(lambda: events(run.directory, "spare"))
    killed = run.kill(rank=1)
    step = step_of_recovery(run)
    print(f"from kill to training on: {time.monotonic() - killed:.2f} s")
    ended = run.ended()
    assert (ended.status, state(run.directory), last_step(run.directory)) == (0, "finished", 100), run.text()
    assert recovered(run)[0][1] == {"workers": 2, "lost": [1], "spares": [2], "source": "memory"}
    with RunReader(run.directory) as reader:
        done = [row.step for row in reader.steps(rank=2)]
        samples = {row.step: row.samples for row in reader.steps(rank=2)}
    assert done == list(range(step + 1, 101))
    assert set(samples.values()) <= {16, 12}  # the second of two shares


@pytest.mark.slow  # trains for seconds
@pytest.mark.parametrize("model", MODELS)
def test_with_steps_of_their_own_a_spare_worker_makes_the_round_under_way_again_with_the_others(launch, model):
    run = launch("train", session(workers=3, pace_s=0.01, consistency=model), MEMORY, "strategy.spares=1")
    run.wait_for_step(20)
    run.wait_until(lambda: events(run.directory, "spare"))
    run.kill(rank=0)
    step = step_of_recovery(run)
    run.wait_for_step(step + 20)
    run.process.send_signal(signal.SIGINT)
    assert run.ended().status == 130, run.text()
    assert recovered(run)[0][1] == {"workers": 3, "lost": [0], "spares": [3], "source": "memory"}
    assert len(recovered(run)) == 1
    assert_each_sample_once(run, lost={0: step})


@pytest.mark.slow  # trains for seconds
def test_a_spare_worker_that_nobody_needs_ends_with_the_run_and_takes_no_part_in_it(launch):
    run = launch("train", session(steps=60, workers=2, pace_s=0.01), MEMORY, "strategy.spares=1")
    ended = run.ended()
    assert (ended.status, state(run.directory), last_step(run.directory)) == (0, "finished", 60), run.text()
    with RunReader(run.directory) as reader:
        assert not list(reader.steps(rank=2))
    assert not recovered(run)


@pytest.mark.slow  # trains three times
@pytest.mark.parametrize("route", ["auto", "ring"])
def test_a_run_with_a_spare_equals_one_that_was_resumed_with_as_many_workers(launch, route):
    steps = 1000
    settings = [MEMORY, "network={layers: [{linear: {outputs: 64}}, relu: {}, {linear: {outputs: classes}}]}"]
    run = launch("train", session(steps=steps, workers=2, route=route), *settings, "strategy.spares=1")
    run.wait_for_step(25)
    run.wait_until(lambda: events(run.directory, "spare"))
    run.kill(rank=1)
    step = step_of_recovery(run)
    assert run.ended().status == 0, run.text()
    assert [data["workers"] for _, data in recovered(run)] == [2]
    told = launch("train", "session.yaml", *settings, f"train.steps={step}", "run.name=told", name="told")
    assert told.ended().status == 0, told.text()
    told = launch("resume", "told", f"train.steps={steps}", name="told")
    assert told.ended().status == 0, told.text()
    assert outcome(run.directory).weights == outcome(told.directory).weights


@pytest.mark.slow  # trains for seconds
def test_of_two_that_are_lost_at_once_one_is_replaced_and_a_lost_spare_changes_nothing(launch):
    run = launch("train", session(steps=200, workers=3, pace_s=0.01), MEMORY, "strategy.spares=2")
    run.wait_for_step(20)
    run.wait_until(lambda: len(events(run.directory, "spare")) == 2)
    run.kill(rank=4)
    run.wait_until(lambda: [one.rank for one in events(run.directory, "lost")] == [4])
    at = run.wait_for_step(last_step(run.directory) + 5)
    assert not recovered(run)
    run.kill(rank=0)
    run.kill(rank=2)
    run.wait_until(lambda: recovered(run) and last_step(run.directory) > recovered(run)[-1][0] + 5)
    assert run.ended().status == 0, run.text()
    assert recovered(run)[-1][1]["workers"] == 2 and recovered(run)[-1][0] >= at - 1
    assert {rank for _, data in recovered(run) for rank in data.get("spares", ())} == {3}


@pytest.mark.slow  # trains for seconds
@pytest.mark.parametrize("seed", range(3))
def test_a_spare_that_is_lost_while_it_takes_over_is_done_without(launch, seed):
    draw = random.Random(seed)
    run = launch("train", session(steps=200, workers=3, pace_s=0.01), MEMORY, "strategy.spares=1")
    run.wait_for_step(20)
    run.wait_until(lambda: events(run.directory, "spare"))
    run.kill(rank=1)
    run.wait_until(lambda: events(run.directory, "lost"))
    time.sleep(draw.uniform(0, 0.3))  # no condition: any moment of the meeting is a case
    run.kill(rank=3)
    assert run.ended().status == 0, run.text()
    assert recovered(run)[-1][1]["workers"] == 2


@pytest.mark.slow  # trains for seconds
def test_a_run_with_a_spare_that_is_stopped_saves_and_leaves_nothing(launch):
    run = launch("train", session(workers=2, pace_s=0.01), MEMORY, "strategy.spares=1")
    run.wait_for_step(20)
    run.wait_until(lambda: events(run.directory, "spare"))
    run.process.send_signal(signal.SIGINT)
    ended = run.ended()
    assert state(run.directory) == "stopped", run.text()
    assert f"resume from step {last_step(run.directory)}" in ended.out


@pytest.mark.slow  # trains for seconds
@pytest.mark.parametrize("seed", range(3))
def test_a_loss_while_checkpoints_are_written_leaves_only_whole_ones(launch, seed):
    draw = random.Random(seed)
    ballast = {"ballast": 200_000}
    run = launch("train", session(steps=STEPS, workers=3, pace_s=0.01, **ballast), MEMORY, "checkpoint.every=1 steps")
    run.wait_for_step(20)
    time.sleep(draw.uniform(0, 0.1))  # no condition: any moment of a save is a case
    run.kill(rank=draw.randrange(3))
    assert run.ended().status == 0, run.text()
    assert last_step(run.directory) == STEPS and len(recovered(run)) == 1
    checkpoints = Checkpoints(run.directory.checkpoints)
    assert [checkpoints.verify(step).step for step in checkpoints.steps()] == checkpoints.steps()
    assert checkpoints.steps()[-1] == STEPS


@pytest.mark.slow  # trains for seconds
def test_half_of_the_workers_may_be_lost_at_once_as_if_they_had_been_one_machine(launch):
    run = launch("train", session(steps=200, workers=4, pace_s=0.01, route="ring"), MEMORY)
    run.wait_for_step(20)
    for rank in (0, 1):
        run.kill(rank)
    assert run.ended().status == 0, run.text()
    assert {one.rank for one in events(run.directory, "lost")} == {0, 1}
    assert recovered(run)[-1][1]["workers"] == 2 and last_step(run.directory) == 200
