"""Contributions of workers over servers stay in the run's curves when it is resumed, and none comes twice."""

from __future__ import annotations

import signal

import pytest

from faults._running import life_of, session, steps
from volary.run.checkpoints import Checkpoints
from volary.run.database.reader import RunReader

SERVER = "{name: server, servers: 1}"


def rows(directory):
    with RunReader(directory) as reader:
        return {(row.rank, row.step, row.ended_at): row.samples for row in reader.steps()}


def newest(run):
    """The greatest number of a contribution that is recorded."""
    return max((step for _, step, _ in rows(run.directory)), default=0)


@pytest.mark.parametrize("consistency", ["async", pytest.param("{name: backup, k: 1}", marks=pytest.mark.slow)])
def test_no_contribution_that_the_checkpoint_has_is_lost_when_the_run_is_resumed(launch, consistency):
    run = launch("train", session(pace_s=0.02, consistency=consistency, exchange=SERVER))
    run.wait_until(lambda: life_of(run.directory) == 0 and steps(run) >= 30)
    run.process.send_signal(signal.SIGINT)
    assert run.ended().status == 130, run.text()
    before, last = rows(run.directory), Checkpoints(run.directory.checkpoints).steps()[-1]
    again = launch("resume", "it", f"train.steps={last + 10}")
    assert again.ended().status == 0, again.text()
    after = rows(run.directory)
    assert before.items() <= after.items()
    assert len(after) > len(before)


@pytest.mark.slow  # two runs each; the one above is killed and resumed, too
@pytest.mark.parametrize(
    ("push_every", "changes"),
    [(1, ()), (4, ("strategy.consistency=bsp", "strategy.exchange=allreduce"))],
    ids=["over servers", "without servers then"],
)
def test_contributions_that_a_killed_run_had_made_after_its_checkpoint_count_once(launch, push_every, changes):
    consistency = f"{{name: async, push_every: {push_every}}}"
    run = launch("train", session(pace_s=0.02, consistency=consistency, exchange=SERVER))
    saved = Checkpoints(run.directory.checkpoints)
    run.wait_until(lambda: life_of(run.directory) == 0 and saved.steps() and push_every * newest(run) >= 28)
    for rank in (0, 1):
        run.kill(rank)
    assert run.ended().status == 4, run.text()
    last = saved.steps()[-1]
    again = launch("resume", "it", f"train.steps={last + 10}", *changes)
    assert again.ended().status == 0, again.text()
    per_epoch = -(-256 // 33)
    epochs, rest = divmod(last + 10, per_epoch)
    assert sum(rows(run.directory).values()) <= epochs * 256 + rest * 33
