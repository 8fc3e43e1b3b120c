"""`strategy.wait_for_driver_s`: a driver is lost, its workers train on, and another one takes its place."""

from __future__ import annotations

import signal
import socket
from pathlib import Path

import psutil
import pytest

from faults._queue import until
from faults._running import descendants, events, last_step, lives, session, state, words
from faults.test_recovered import recovered
from volary.run.checkpoints import Checkpoints
from volary.run.database.reader import RunReader
from volary.run.launch.meeting import announced

WAITS = ["strategy.recover=memory", "strategy.wait_for_driver_s=120"]


def workers_of(run, count=2):
    return [psutil.Process(run.pid(rank)) for rank in range(count)]


def assert_nothing_left(run):
    left = run.left(15)
    assert not left, f"left behind: {[words(one) for one in left]}"
    assert announced(run.directory) is None
    assert not run.directory.is_live()


def steps_of(directory, rank):
    with RunReader(directory) as reader:
        return [row.step for row in reader.steps(rank=rank)]


@pytest.mark.parametrize("partition", ["data", pytest.param("sharded", marks=pytest.mark.slow)])
def test_another_driver_takes_the_place_of_a_killed_one_and_drives_the_run_to_its_end(launch, partition):
    # they wait in step 60 for a driver, however quick this machine is
    run = launch(
        "train",
        session(steps=80, pace_s=0.03, fault="loop until told", at=60, ranks=[0, 1]),
        *WAITS,
        f"strategy.partition={partition}",
    )
    run.wait_for_step(20)
    refused = launch("attach", "--drive", "it").ended()
    assert refused.status == 2
    assert f"is driven by process {run.process.pid} on host {socket.gethostname()}, which answers" in refused.err
    workers = workers_of(run)
    run.process.kill()
    new = launch("attach", "--drive", "it")
    new.wait_until(lambda: events(run.directory, "taken_over"))
    Path("go-on").touch()
    new.wait_until(lambda: recovered(run))
    assert [run.pid(rank) for rank in (0, 1)] == [one.pid for one in workers]
    assert all(lives(worker) for worker in workers)
    ended = new.ended()
    assert (ended.status, state(run.directory), last_step(run.directory)) == (0, "finished", 80), new.text()
    (taken,) = events(run.directory, "taken_over")
    assert (taken.data["pid"], taken.attempt) == (new.process.pid, 1)
    ((step, data),) = recovered(run)
    assert data == {"workers": 2, "lost": [], "source": "memory"}
    assert "drives the run in place of its driver, which was lost" in ended.out
    for rank in (0, 1):  # what the lost driver had not recorded yet may be absent
        assert set(range(step + 1, 81)) <= set(steps_of(run.directory, rank))
    assert_nothing_left(run)
    assert "Traceback" not in run.text() + new.text()


@pytest.mark.slow  # trains for seconds
def test_workers_that_reach_the_last_step_without_a_driver_save_and_wait_for_one_that_ends_the_run_well(launch):
    run = launch("train", session(steps=60, pace_s=0.03), *WAITS)
    run.wait_for_step(20)
    run.process.kill()
    until(lambda: len(list(run.directory.verdicts.iterdir())) == 2, 60)
    assert all(lives(worker) for worker in workers_of(run))
    assert state(run.directory) == "running"
    assert Checkpoints(run.directory.checkpoints).steps()[-1] == 60
    new = launch("attach", "--drive", "it")
    ended = new.ended()
    assert (ended.status, state(run.directory), last_step(run.directory)) == (0, "finished", 60), new.text()
    for rank in (0, 1):
        assert steps_of(run.directory, rank)[-1] == 60
    assert not events(run.directory, "lost")
    assert_nothing_left(run)
    assert "Traceback" not in run.text() + new.text()


@pytest.mark.slow  # trains for seconds
def test_a_driver_that_was_only_stopped_finds_that_it_was_replaced_and_touches_nothing(launch):
    run = launch("train", session(pace_s=0.03), *WAITS)
    run.wait_for_step(20)
    workers = workers_of(run)
    run.process.send_signal(signal.SIGSTOP)
    new = launch("attach", "--drive", "it")
    new.wait_until(lambda: recovered(run))
    run.process.send_signal(signal.SIGCONT)
    old = run.process.wait(60)
    assert old == 1, run.text()
    assert (
        "another process drives this run by now, or has resumed it: this one writes no more and has ended" in run.text()
    )
    at = last_step(run.directory)
    new.wait_until(lambda: last_step(run.directory) > at + 10)
    assert all(lives(worker) for worker in workers)
    assert announced(run.directory) is not None
    new.process.send_signal(signal.SIGINT)
    ended = new.ended()
    assert (ended.status, state(run.directory)) == (130, "stopped"), new.text()
    assert Checkpoints(run.directory.checkpoints).steps()[-1] > at
    assert not events(run.directory, "lost")
    assert_nothing_left(run)


@pytest.mark.slow  # trains for seconds
def test_after_it_workers_are_lost_leave_and_join_as_before_and_the_run_is_resumed(launch):
    run = launch("train", session(workers=3, pace_s=0.03), *WAITS)
    run.wait_for_step(20)
    run.process.kill()
    new = launch("attach", "--drive", "it")
    new.wait_until(lambda: recovered(run))
    run.kill(rank=0)
    new.wait_until(lambda: len(recovered(run)) == 2)
    assert recovered(run)[-1][1] == {"workers": 2, "lost": [0], "source": "memory"}
    join = launch("join", "it")
    new.wait_until(lambda: len(recovered(run)) == 3)
    assert recovered(run)[-1][1]["joined"] == [3]
    assert launch("leave", "it", "1").ended().status == 0
    new.wait_until(lambda: len(recovered(run)) == 4)
    assert recovered(run)[-1][1]["left"] == [1]
    assert launch("stop", "it").ended().status == 0
    ended = new.ended()
    assert (ended.status, state(run.directory)) == (130, "stopped"), new.text()
    assert join.ended().status == 0
    assert_nothing_left(run)
    saved = Checkpoints(run.directory.checkpoints).steps()[-1]
    again = launch("resume", "it", f"train.steps={saved + 20}")
    assert again.ended().status == 0, again.text()
    assert [event.data["from_step"] for event in events(run.directory, "resumed")] == [saved]


@pytest.mark.slow  # trains for seconds
def test_a_driver_and_a_worker_that_are_killed_at_once_are_missed_and_the_other_two_train_on(launch):
    run = launch("train", session(steps=120, workers=3, pace_s=0.03), *WAITS)
    run.wait_for_step(20)
    worker = run.pid(1)
    run.process.kill()
    psutil.Process(worker).kill()
    new = launch("attach", "--drive", "it")
    ended = new.ended()
    assert (ended.status, last_step(run.directory)) == (0, 120), new.text()
    (lost,) = events(run.directory, "lost")
    assert (lost.rank, lost.data["reason"]) == (1, "did not come to the new driver within 10 s")
    assert recovered(run)[-1][1] == {"workers": 2, "lost": [1], "source": "memory"}
    assert_nothing_left(run)


@pytest.mark.slow  # trains for seconds
@pytest.mark.parametrize("where", ["recovery", "save"])
def test_a_driver_that_is_killed_in_a_recovery_or_a_save_is_replaced_as_well(launch, where):
    run = launch("train", session(steps=160, workers=3, pace_s=0.02), *WAITS, "checkpoint.every=3 steps")
    run.wait_for_step(20)
    if where == "recovery":
        psutil.Process(run.pid(1)).kill()
        run.wait_until(lambda: events(run.directory, "lost"))
    else:
        at = len(events(run.directory, "checkpoint"))
        run.wait_until(lambda: len(events(run.directory, "checkpoint")) > at)
    run.process.kill()
    new = launch("attach", "--drive", "it")
    ended = new.ended()
    assert (ended.status, last_step(run.directory)) == (0, 160), new.text()
    checkpoints = Checkpoints(run.directory.checkpoints)
    assert [checkpoints.verify(step).step for step in checkpoints.steps()][-1] == 160
    if where == "recovery":
        assert recovered(run)[-1][1] == {"workers": 2, "lost": [1], "source": "memory"}
    assert_nothing_left(run)
    assert "Traceback" not in run.text() + new.text()


@pytest.mark.slow  # trains for seconds
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
def test_a_standby_takes_the_place_of_a_lost_driver_by_itself_and_has_one_of_its_own(launch, number):
    run = launch("train", session(steps=400, pace_s=0.03), *WAITS, "strategy.standby=true")
    run.wait_for_step(20)
    run.process.send_signal(number)
    run.process.poll()
    with_it = descendants(run.process.pid)
    wait = launch("attach", "it")  # whoever follows sees it go on
    wait.wait_until(lambda: events(run.directory, "taken_over") and recovered(run))
    run.started |= with_it | {psutil.Process(events(run.directory, "taken_over")[0].data["pid"])}
    if number == signal.SIGSTOP:
        run.process.send_signal(signal.SIGCONT)
        assert run.process.wait(60) == 1
    wait.wait_until(lambda: state(run.directory) != "running")
    assert (state(run.directory), last_step(run.directory)) == ("finished", 400)
    assert wait.ended().status == 0
    assert_nothing_left(run)


@pytest.mark.slow  # trains for seconds
def test_a_standby_that_nobody_needs_ends_with_the_run(launch):
    run = launch("train", session(steps=60), *WAITS, "strategy.standby=true")
    run.wait_until(lambda: any("--standby" in words(one) for one in descendants(run.process.pid)))
    run.started |= descendants(run.process.pid)
    assert run.ended().status == 0, run.text()
    assert not events(run.directory, "taken_over")
    assert_nothing_left(run)


@pytest.mark.slow  # waits for a driver that does not come
def test_workers_for_which_no_driver_comes_save_and_end_after_the_time_that_they_wait(launch):
    run = launch("train", session(pace_s=0.03), WAITS[0], "strategy.wait_for_driver_s=4")
    at = run.wait_for_step(20)
    run.process.kill()
    ended = run.ended(gone_within_s=30)
    assert "is gone, without a word; its workers train on, and wait up to 4 s for another one" in ended.err
    assert "volary attach --drive it" in ended.err
    saved = Checkpoints(run.directory.checkpoints).steps()[-1]
    assert saved > at
    assert f"resume from step {saved}: volary resume it" in ended.err
    said = run.directory.log(0).read_text() + run.directory.log(1).read_text()
    assert "nothing listens any more where it did; no other one has come for 4 s; stopped after step" in said
    refused = launch("attach", "--drive", "it").ended()
    assert (refused.status, "has neither a driver nor workers any more" in refused.err) == (2, True), refused.err


@pytest.mark.slow  # trains for seconds
def test_a_run_that_has_ended_or_does_not_wait_cannot_be_driven_on(launch):
    run = launch("train", session(steps=400, pace_s=0.02), WAITS[0])
    run.wait_for_step(5)
    refused = launch("attach", "--drive", "it").ended()
    assert (refused.status, "strategy.wait_for_driver_s is 0" in refused.err) == (2, True), refused.err
    assert launch("stop", "it").ended().status == 0
    run.ended()
    refused = launch("attach", "--standby", "it").ended()
    assert (refused.status, "is over (stopped); resume it: volary resume it" in refused.err) == (2, True), refused.err
