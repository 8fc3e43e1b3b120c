"""`volary leave` and `volary join` where workers keep step: the others train on from what they have in memory."""

from __future__ import annotations

import random
import signal
import time
from pathlib import Path

import pytest

from faults._running import VOLARY, events, last_step, learnt, outcome, running, session, state
from faults.test_recovered import LOCAL, MEMORY, assert_each_sample_once, recovered, step_of_recovery
from volary.run.checkpoints import Checkpoints
from volary.run.database.reader import RunReader

WIDE = "network={layers: [{linear: {outputs: 128}}, relu: {}, {linear: {outputs: classes}}]}"
LEAVES_SLOWLY = [
    ({"route": "ring"}, []),
    ({"route": "torch"}, ["train.clip_norm=1"]),
    ({"route": "ring"}, ["optimizer=adamw", "train.accumulate=2"]),
    ({"route": "ring"}, ["strategy.codec=topk", WIDE]),
    ({"consistency": "local"}, []),
    ({"consistency": LOCAL}, []),
]


def stopped(run, after):
    """Stop the run some steps after that one; the step that it ends with."""
    run.wait_until(lambda: last_step(run.directory) > after + 10)
    run.process.send_signal(signal.SIGINT)
    assert run.ended().status == 130, run.text()
    return last_step(run.directory)


def told(launch, change, workers, last, settings):
    """The weights after step `last` of a run that was told to stop after step `change`, and resumed with so many."""
    first = launch("train", "session.yaml", *settings, f"train.steps={change}", "run.name=told", name="told")
    assert first.ended().status == 0, first.text()
    rest = launch("resume", "told", f"train.steps={last}", f"strategy.workers={workers}", name="told")
    assert rest.ended().status == 0, rest.text()
    return outcome(rest.directory).weights


def leaves(run, rank):
    """Let a worker leave; the step after which it has."""
    with running(*VOLARY, "leave", "it", str(rank)) as leaving:
        said = leaving.ended()
    (left,) = [one for one in events(run.directory, "left") if one.rank == rank]
    assert (said.status, said.out) == (0, f"rank {rank} left it after step {left.step}\n"), said.err + run.text()
    return left.step


def test_a_worker_leaves_and_another_joins_and_every_sample_is_learnt_once(launch):
    run = launch("train", session(workers=3, pace_s=0.01), MEMORY)
    run.wait_for_step(20)
    left = leaves(run, 1)
    with running(*VOLARY, "join", "it") as joining:
        run.wait_until(lambda: learnt(run, 3))
        last = stopped(run, last_step(run.directory))
        assert joining.ended().out == "rank 3 left it, which has ended\n"
    assert state(run.directory) == "stopped" and events(run.directory, "lost") == []
    (first, after_leaving), (second, after_joining) = recovered(run)
    assert first == left
    assert after_leaving == {"workers": 2, "lost": [], "left": [1], "source": "memory"}
    assert after_joining == {"workers": 3, "lost": [], "joined": [3], "source": "memory"}
    with RunReader(run.directory) as reader:
        rows = list(reader.steps())
    done = {rank: [row.step for row in rows if row.rank == rank] for rank in range(4)}
    assert done == {
        0: list(range(1, last + 1)),
        1: list(range(1, first + 1)),
        2: list(range(1, last + 1)),
        3: list(range(second + 1, last + 1)),
    }
    assert_each_sample_once(run, lost={1: first})


@pytest.mark.slow  # trains three times
@pytest.mark.parametrize(("settings", "more"), [({}, []), *LEAVES_SLOWLY])
def test_a_run_that_its_last_worker_left_equals_one_that_was_told_to_go_on_without_it(launch, settings, more):
    run = launch("train", session(workers=3, pace_s=0.01, **settings), MEMORY, *more)
    run.wait_for_step(25)
    step = leaves(run, 2)
    assert step_of_recovery(run) == step
    last = stopped(run, step)
    assert outcome(run.directory).weights == told(launch, step, 2, last, [MEMORY, *more])


@pytest.mark.slow  # trains three times
@pytest.mark.parametrize(("settings", "more"), [({}, []), *LEAVES_SLOWLY])
def test_a_run_that_a_worker_joined_equals_one_that_was_told_to_go_on_with_it(launch, settings, more):
    run = launch("train", session(workers=2, pace_s=0.01, **settings), MEMORY, *more)
    run.wait_for_step(5)
    with running(*VOLARY, "join", "it") as joining:
        step = step_of_recovery(run)
        last = stopped(run, step)
        assert joining.ended().status == 0, run.text()
    assert outcome(run.directory).weights == told(launch, step, 3, last, [MEMORY, *more])


def assert_whole(run, last):
    """All checkpoints of the run are whole, the newest of step `last`."""
    checkpoints = Checkpoints(run.directory.checkpoints)
    assert [checkpoints.verify(step).step for step in checkpoints.steps()] == checkpoints.steps()
    assert checkpoints.steps()[-1] == last


@pytest.mark.slow  # trains for seconds
@pytest.mark.parametrize(
    "model",
    [LOCAL, "{name: elastic, period: 3}", "{name: gossip, period: 2}", "{name: local, period: 6, fragments: 3}"],
)
def test_with_steps_of_their_own_workers_leave_and_join_between_two_rounds(launch, model):
    run = launch("train", session(workers=3, pace_s=0.01, consistency=model), MEMORY)
    run.wait_for_step(20)
    left = leaves(run, 0)
    with running(*VOLARY, "join", "it") as joining:
        run.wait_until(lambda: learnt(run, 3))
        stopped(run, last_step(run.directory))
        assert joining.ended().status == 0
    assert [data["workers"] for _, data in recovered(run)] == [2, 3]
    assert_each_sample_once(run, lost={0: left})


@pytest.mark.slow  # trains for seconds
@pytest.mark.parametrize("until", ["joined", "starting", "recovered", "trains"])
def test_a_joiner_that_is_killed_at_any_moment_of_its_join_is_done_without(launch, until):
    run = launch("train", session(workers=2, pace_s=0.01), MEMORY)
    run.wait_for_step(20)
    with running(*VOLARY, "join", "it") as joining:
        run.wait_until(lambda: events(run.directory, "joined"))
        if until == "starting":
            time.sleep(random.Random(1).uniform(0, 1))  # no condition: any moment of its start is a case
        elif until == "recovered":
            run.wait_until(lambda: recovered(run))
        elif until == "trains":
            run.wait_until(lambda: learnt(run, 2))
        run.kill(rank=2)
        ended = joining.ended()
        assert (ended.status, "rank 2 was killed by SIGKILL" in ended.err) == (4, True), ended.err
    run.wait_until(lambda: [one.rank for one in events(run.directory, "lost")] == [2])
    run.wait_until(lambda: not recovered(run) or recovered(run)[-1][1]["workers"] == 2)
    last = stopped(run, last_step(run.directory))
    with RunReader(run.directory) as reader:
        done = {row.rank: row.step for row in reader.steps()}
    assert done[0] == done[1] == last
    assert_whole(run, last)


@pytest.mark.slow  # trains for seconds
@pytest.mark.parametrize("rank", [0, 1])
def test_a_worker_leaves_while_checkpoints_are_written_and_all_of_these_are_whole(launch, rank):
    run = launch("train", session(workers=3, pace_s=0.01, ballast=200_000), MEMORY, "checkpoint.every=1 steps")
    run.wait_for_step(20)
    left = leaves(run, rank)
    last = stopped(run, left)
    assert [data["workers"] for _, data in recovered(run)] == [2]
    assert_whole(run, last)


@pytest.mark.slow  # trains for seconds
def test_workers_that_are_asked_at_once_leave_and_one_that_is_lost_meanwhile_is_lost(launch):
    run = launch("train", session(workers=4, pace_s=0.01), MEMORY)
    run.wait_for_step(20)
    with running(*VOLARY, "leave", "it", "3") as first, running(*VOLARY, "leave", "it", "1") as second:
        run.kill(rank=2)
        assert (first.ended().status, second.ended().status) == (0, 0), run.text()
    assert [one.rank for one in events(run.directory, "lost")] == [2]
    run.wait_until(lambda: recovered(run)[-1][1]["workers"] == 1)
    with running(*VOLARY, "leave", "it", "0") as last:
        said = last.ended()
    assert (said.status, "rank 0 is the last one; accepted: volary stop" in said.err) == (2, True), said.err
    stopped(run, last_step(run.directory))


@pytest.mark.slow  # trains for seconds
def test_a_joiner_with_other_code_is_refused_with_a_table_and_the_run_notices_nothing(launch):
    run = launch("train", session(workers=2, pace_s=0.01), MEMORY)
    run.wait_for_step(20)
    with Path("net.py").open("a") as file:
        file.write("# another version\n")
    with running(*VOLARY, "join", "it") as joining:
        said = joining.ended()
    assert said.status == 5, said.err
    assert "rank 2 differs from the run's first worker, so it does not take part:" in said.err
    assert "code of network: there " in said.err
    stopped(run, last_step(run.directory))
    assert not recovered(run)


@pytest.mark.slow  # trains for seconds
def test_ctrl_c_in_volary_join_lets_its_workers_leave_and_the_run_goes_on(launch):
    run = launch("train", session(workers=2, pace_s=0.01), MEMORY)
    run.wait_for_step(20)
    with running(*VOLARY, "join", "it", "--workers", "2") as joining:
        run.wait_until(lambda: learnt(run, 2) and learnt(run, 3))
        joining.process.send_signal(signal.SIGINT)
        ended = joining.ended()
    assert (ended.status, ended.out) == (0, "rank 2, 3 left it\n"), ended.err
    stopped(run, last_step(run.directory))
    assert recovered(run)[-1][1]["workers"] == 2 and not events(run.directory, "lost")


@pytest.mark.slow  # trains for seconds
def test_over_servers_a_worker_leaves_as_well(launch):
    served = session(workers=3, pace_s=0.02, consistency="async", exchange="{name: server, servers: 1}")
    run = launch("train", served)
    run.wait_for_step(5)
    leaves(run, 1)
    at = last_step(run.directory)
    run.wait_until(lambda: last_step(run.directory) > at + 10)
    run.process.send_signal(signal.SIGINT)
    assert run.ended().status == 130


@pytest.mark.slow  # trains for seconds
@pytest.mark.parametrize("served", [False, True], ids=["all-reduce", "servers"])
def test_a_worker_that_hangs_is_expelled_and_the_others_go_on_without_it(launch, served):
    how = {"consistency": "async", "exchange": "{name: server, servers: 1}"} if served else {}
    text = session(workers=3, pace_s=0.01, suspect_after_s=300, give_up_after_s=600, **how)
    run = launch("train", text, *([] if served else [MEMORY]))
    run.wait_for_step(5)
    pid = run.pid(rank=1)
    run.kill(rank=1, number=signal.SIGSTOP)
    with running(*VOLARY, "leave", "it", "1", "--now") as leaving:
        said = leaving.ended()
    (lost,) = events(run.directory, "lost")
    assert (said.status, said.out) == (0, f"rank 1 was expelled from it at step {lost.step}\n"), said.err + run.text()
    assert (lost.rank, lost.data["reason"]) == (1, "was expelled by volary leave --now")
    at = last_step(run.directory)
    run.wait_until(lambda: last_step(run.directory) > at + 10)
    run.wait_until(lambda: not Path("/proc", str(pid)).exists())
    with running(*VOLARY, "leave", "it", "1", "--now") as again:
        said = again.ended()
    assert said.status == 2 and "asked to expel rank 1, which cannot be done: rank 1 does not train" in said.err
    run.process.send_signal(signal.SIGINT)
    assert run.ended().status == 130


@pytest.mark.slow  # trains for seconds
def test_a_run_of_one_to_two_workers_takes_no_third_and_does_not_end_by_a_leave(launch):
    run = launch("train", session(workers=1, pace_s=0.01), MEMORY, "strategy.workers=1..2")
    run.wait_for_step(20)
    with RunReader(run.directory) as reader:
        begun = len(reader.ranks())
    if begun == 2:  # as there are cores for it
        leaves(run, 1)
    with running(*VOLARY, "join", "it") as joining, running(*VOLARY, "leave", "it", "0") as leaving:
        said = leaving.ended()
        assert said.status == 2 and "rank 0 is the last one" in said.err
        run.wait_until(lambda: learnt(run, begun))
        with running(*VOLARY, "join", "it") as third:
            said = third.ended()
        assert said.status == 2 and "2 workers train, and strategy.workers is 1..2" in said.err
        stopped(run, last_step(run.directory))
        assert joining.ended().status == 0
