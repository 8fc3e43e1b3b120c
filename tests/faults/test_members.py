"""`volary leave` and `volary join` where workers keep step: the others train on from what they have in memory."""

from __future__ import annotations

import signal

import pytest

from faults._running import VOLARY, events, last_step, learnt, outcome, running, session, state
from faults.test_recovered import LOCAL, MEMORY, assert_each_sample_once, recovered, step_of_recovery
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
