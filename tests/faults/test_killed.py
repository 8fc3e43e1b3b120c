"""kill -9: of a worker, of the driver, of everything; and what `resume` makes of it."""

from __future__ import annotations

import random
import re
import signal
import socket
import time

import psutil
import pytest

from faults._running import descendants, outcome, session, state
from faults.conftest import STEPS
from volary.run.checkpoints import Checkpoints


@pytest.mark.parametrize("route", ["auto", pytest.param("torch", marks=pytest.mark.slow)])
def test_killed_worker_ends_the_run_with_its_name_and_resume_completes_it_exactly(launch, undisturbed, route):
    run = launch("train", session(steps=STEPS, pace_s=0.03, route=route))
    run.wait_for_step(25)
    run.wait_for_checkpoint(19)  # is written beside the steps, on a busy machine for some of them
    killed, pid = run.kill(rank=1), run.pid(1)
    ended = run.ended(at_most_s=5)
    print(f"from kill to the end of the command: {time.monotonic() - killed:.2f} s")
    assert ended.status == 4
    message = ended.err.splitlines()
    assert f"rank 1 (host {socket.gethostname()}, process {pid}) was killed by SIGKILL; last step " in message[0]
    assert ", in " in message[0]
    assert "out of memory" not in message[0]
    assert message[-3:-1] == ["  rank 0 ended because of it", "log: runs/it/logs/worker-1.log"]
    assert re.fullmatch(r"resume from step (19|20|39|40): volary resume it", message[-1]), message
    assert "Traceback" not in ended.err
    assert state(run.directory) == "failed"
    again = launch("resume", "it")
    assert again.ended().status == 0, again.text()
    assert outcome(run.directory) == undisturbed


@pytest.mark.slow  # a run of its own; sums as they are come above
def test_killed_worker_is_named_where_the_others_wait_for_its_frames(launch):
    run = launch("train", session(steps=STEPS, workers=3, pace_s=0.02, route="torch"), "strategy.codec=onebit")
    run.wait_for_step(25)
    run.kill(rank=1)
    ended = run.ended()
    assert ended.status == 4
    assert "rank 1 " in ended.err.splitlines()[0]
    assert "was killed by SIGKILL" in ended.err.splitlines()[0]
    assert "  rank 0, 2 ended because of it" in ended.err.splitlines()


@pytest.mark.slow  # a worker of a replica is killed above
@pytest.mark.parametrize(
    ("route", "level"), [*(pytest.param(one, 1, marks=pytest.mark.slow) for one in ("auto", "ring")), ("ring", 3)]
)
def test_killed_worker_that_keeps_a_share_is_named_and_resume_completes_the_run(launch, route, level):
    partition = f"strategy.partition={{name: sharded, level: {level}}}"
    run = launch("train", session(steps=STEPS, pace_s=0.02, route=route), partition)
    run.wait_for_step(25)
    run.kill(rank=1)  # the other waits for its sums, or for what it keeps
    ended = run.ended(at_most_s=5)
    assert ended.status == 4
    assert "rank 1 " in ended.err.splitlines()[0] and " was killed by SIGKILL; last step " in ended.err.splitlines()[0]
    again = launch("resume", "it")
    assert again.ended().status == 0, again.text()
    assert state(run.directory) == "finished"


@pytest.mark.slow  # a worker that keeps shares is killed above
@pytest.mark.parametrize(
    ("partition", "part"),
    [
        ("tensor", "part 2 of 2 of cut layers"),
        ("hybrid", "part 2 of 2 of cut layers"),
        ("{name: sharded, level: 3}", "share 2 of 2"),
    ],
)
def test_killed_worker_that_holds_a_part_is_named_with_it_and_resume_completes_the_run(launch, partition, part):
    run = launch("train", session(steps=STEPS, pace_s=0.02), f"strategy.partition={partition}")
    run.wait_for_step(25)
    run.kill(rank=1)
    ended = run.ended(at_most_s=5)
    assert ended.status == 4
    assert re.match(rf"rank 1 \(.*, {part}\) was killed by SIGKILL; last step \d+, in ", ended.err), ended.err
    again = launch("resume", "it")
    assert again.ended().status == 0, again.text()
    assert state(run.directory) == "finished"


CHAIN = (
    "network={layers: [{linear: {outputs: 32}}, relu, {linear: {outputs: 32}}, relu, {linear: {outputs: 16}}, relu, \
{linear: {outputs: classes}}]}"
)


@pytest.mark.slow  # a worker of a replica is killed, and one is stopped, in ordinary tests
@pytest.mark.parametrize(
    ("schedule", "how", "said"),
    [
        ("1f1b", signal.SIGKILL, r"stage 2 of 2\) was killed by SIGKILL; last step \d+, in "),
        ("interleaved", signal.SIGSTOP, r"stages 2 and 4 of 4\) has been silent for \d+ s.*; last step \d+, in "),
    ],
)
def test_worker_that_is_killed_or_stopped_in_a_pipeline_is_named_with_its_stages(launch, schedule, how, said):
    partition = f"strategy.partition={{name: pipeline, micro_batches: 2, schedule: {schedule}}}"
    run = launch("train", session(suspect_after_s=1, give_up_after_s=2.5), CHAIN, partition)
    run.wait_for_step(25)
    run.kill(rank=1, number=how)
    ended = run.ended(at_most_s=10)
    assert ended.status == 4
    assert re.match(rf"rank 1 \(host \S+, process \d+, {said}", ended.err), ended.err


@pytest.mark.slow  # trains twice; replicas that are equal are above
def test_killed_worker_of_replicas_that_differ_is_named_and_resume_completes_the_run(launch):
    run = launch("train", session(steps=STEPS, workers=3, pace_s=0.02, consistency="gossip"))
    run.wait_for_step(25)
    run.kill(rank=1)
    ended = run.ended(at_most_s=5)
    assert ended.status == 4
    assert "rank 1 " in ended.err.splitlines()[0] and " was killed by SIGKILL" in ended.err.splitlines()[0]
    again = launch("resume", "it")
    assert again.ended().status == 0, again.text()


@pytest.mark.slow  # trains six times; the one above is killed and resumed, too
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_run_killed_at_any_step_leaves_no_worker_and_is_resumed_to_the_same_parameters_bit_for_bit(
    launch, undisturbed, seed
):
    draw = random.Random(seed)
    command, from_step = ("train", session(steps=STEPS, pace_s=0.01)), 0
    for victims in ("driver", "driver and workers"):
        run = launch(*command)
        run.wait_for_step(from_step + draw.randint(1, (STEPS - from_step) // 2))
        workers = descendants(run.process.pid)
        if victims == "driver":  # a stopped worker must go too; it cannot by itself
            run.kill(rank=1, number=signal.SIGSTOP)
            run.wait_until(lambda run=run: psutil.Process(run.pid(1)).status() == psutil.STATUS_STOPPED)
        run.process.kill()
        if victims != "driver":
            for worker in workers:
                worker.kill()
        assert run.ended(at_most_s=5, gone_within_s=30).status == -signal.SIGKILL  # and nothing that it started lives
        assert state(run.directory) == "lost"
        from_step = (Checkpoints(run.directory.checkpoints).steps() or [0])[-1]
        command = ("resume", "it")
    again = launch(*command)
    assert again.ended().status == 0, again.text()
    assert outcome(run.directory).continues(undisturbed)
