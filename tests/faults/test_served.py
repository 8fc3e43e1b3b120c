"""Runs with parameter servers: workers and servers are killed, stopped and added; the run goes on, or says why not."""

from __future__ import annotations

import json
import os
import signal
import socket
import time
from pathlib import Path

import psutil
import pytest

from faults._running import Run, descendants, events, learnt, lives, session, state, steps
from volary.run.checkpoints import Checkpoints
from volary.run.database.reader import RunReader

ONE = "{name: server, servers: 1}"
TWO = "{name: server, servers: 2}"
REPLICATED = "{name: server, servers: 2, replicas: 2}"
COLOCATED = "{name: server, servers: colocated, replicas: 2}"
STEPS = 150


def info(run: Run) -> dict[str, str]:
    with RunReader(run.directory) as reader:
        return reader.info()


def wait_for_steps(run: Run, number: int) -> int:
    run.wait_for_step(1)
    run.wait_until(lambda: steps(run) >= number)
    return steps(run)


def server_pid(run: Run, number: int) -> int:
    return int(json.loads(info(run)["server_pids"])[number])


def lost(run: Run) -> list[int | None]:
    return [event.rank for event in events(run.directory, "lost")]


def samples_used(run: Run) -> int:
    """The samples that the run's updates are made of, by its newest checkpoint."""
    checkpoints = Checkpoints(run.directory.checkpoints)
    state = json.loads((checkpoints.path(checkpoints.steps()[-1]) / "roster.json").read_bytes())
    return int(state["samples"])


def all_samples(number: int) -> int:
    """Samples of so many steps of the session: 7 full batches of 33 and one of 25 are an epoch."""
    return number // 8 * 256 + number % 8 * 33


def test_run_goes_on_without_a_killed_server_and_a_killed_worker_and_with_one_that_joins(launch):
    run = launch("train", session(workers=2, pace_s=0.02, consistency="async", exchange=REPLICATED))
    at = wait_for_steps(run, 5)
    os.kill(server_pid(run, 1), signal.SIGKILL)
    killed = time.monotonic()
    run.wait_until(lambda: events(run.directory, "server_lost"))
    run.wait_until(lambda: steps(run) > at + 5)
    print(f"from the server's death to the fifth update after it: {time.monotonic() - killed:.2f} s")

    joining = launch("join", "it")
    run.wait_until(lambda: learnt(run, 2))
    run.kill(rank=1)
    run.wait_until(lambda: lost(run) == [1])
    at = steps(run)
    run.wait_until(lambda: steps(run) > at + 5)
    run.process.send_signal(signal.SIGINT)
    assert run.ended().status == 130, run.text()
    assert joining.ended().status == 0, joining.text()
    assert (state(run.directory), lost(run)) == ("stopped", [1])


PARTS = """\
network: lenet
data: {{source: digits, batch_size: 16}}
train: {{steps: 100000}}
evaluate: {{every: never}}
strategy:
  workers: 4
  consistency: async
  exchange: {{name: server, servers: 2}}
  partition: {{name: mesh, axes: {{data: 2, {inside}: 2}}}}
run: {{name: it}}
"""


@pytest.mark.slow  # four workers
@pytest.mark.parametrize(
    ("inside", "how", "place"),
    [("tensor", signal.SIGKILL, "part 1 of 2 of cut layers"), ("pipeline", signal.SIGSTOP, "stage 1 of 2")],
)
def test_a_replica_ends_with_its_lost_worker_which_is_named_by_its_part_and_others_go_on(launch, inside, how, place):
    Path("session.yaml").write_text(PARTS.format(inside=inside))
    run = launch("train", "session.yaml")
    wait_for_steps(run, 5)
    os.kill(json.loads(info(run)["pids"])[3], how)
    run.wait_until(lambda: sorted(lost(run)) == [2, 3])
    first, second = events(run.directory, "lost")
    assert (first.rank, first.data["part"]) == (2, f"{place} of replica 2")
    assert second.data["reason"] == "ended with rank 2, which held the same replica"
    at = steps(run)
    run.wait_until(lambda: steps(run) > at + 5)
    run.process.send_signal(signal.SIGINT)
    assert run.ended().status == 130, run.text()


@pytest.mark.slow  # four workers
@pytest.mark.parametrize(("inside", "asks"), [("tensor", "leave"), ("pipeline", "signal")])
def test_a_replica_leaves_with_its_worker_that_is_asked_to_and_others_go_on(launch, inside, asks):
    Path("session.yaml").write_text(PARTS.format(inside=inside).replace("every: never", "every: 3 steps"))
    run = launch("train", "session.yaml")
    wait_for_steps(run, 5)
    if asks == "leave":
        told = launch("leave", "it", "3")
        ended = told.ended()
        assert ended.status == 0 and "rank 3 left it after step" in ended.out, ended
    else:
        os.kill(json.loads(info(run)["pids"])[3], signal.SIGTERM)
    run.wait_until(lambda: sorted(event.rank for event in events(run.directory, "left")) == [2, 3])
    at = steps(run)
    run.wait_until(lambda: steps(run) > at + 5)
    assert not lost(run)
    run.process.send_signal(signal.SIGINT)
    assert run.ended().status == 130, run.text()


@pytest.mark.slow
def test_run_whose_last_worker_is_killed_goes_on_with_one_that_is_still_starting(launch):
    run = launch("train", session(workers=1, pace_s=0.02, consistency="async", exchange=ONE))
    wait_for_steps(run, 5)
    joining = launch("join", "it")
    run.wait_until(lambda: events(run.directory, "joined"))  # it imports torch next
    os.kill(json.loads(info(run)["pids"])[1], signal.SIGKILL)
    run.wait_until(lambda: lost(run) == [0])
    run.wait_until(lambda: learnt(run, 1))
    run.process.send_signal(signal.SIGINT)
    assert run.ended().status == 130, run.text()
    assert joining.ended().status == 0, joining.text()


@pytest.mark.slow
def test_run_that_has_done_its_last_step_does_not_wait_for_a_worker_that_is_still_starting(launch):
    run = launch("train", session(steps=STEPS, workers=1, pace_s=0.05, consistency="async", exchange=ONE))
    wait_for_steps(run, 5)
    joining = launch("join", "it")
    run.wait_until(lambda: events(run.directory, "joined"))
    starting = psutil.Process(json.loads(info(run)["pids"])[-1])
    starting.suspend()  # it does not come in time
    assert run.ended().status == 0, run.text()
    assert (state(run.directory), samples_used(run)) == ("finished", all_samples(STEPS))
    starting.resume()
    assert joining.ended().status == 0, joining.text()
    assert "which has ended" in joining.text()


@pytest.mark.slow
@pytest.mark.parametrize("consistency", ["ssp", "backup", "async", "{name: backup, epoch: 0.75}"])
def test_killed_worker_is_an_event_and_no_sample_is_lost(launch, consistency):
    run = launch("train", session(steps=STEPS, workers=3, pace_s=0.02, consistency=consistency, exchange=ONE))
    wait_for_steps(run, 5)
    run.kill(rank=1)
    assert run.ended().status == 0, run.text()
    assert (state(run.directory), lost(run)) == ("finished", [1])
    assert samples_used(run) == all_samples(STEPS)


@pytest.mark.slow  # tests/simulation has all models
@pytest.mark.parametrize(
    "consistency", [*(pytest.param(one, marks=pytest.mark.slow) for one in ("ssp", "backup")), "async"]
)
def test_models_whose_workers_may_die_keep_that_promise_by_default_whichever_it_is(launch, consistency):
    run = launch("train", session(steps=STEPS, workers=3, pace_s=0.02, consistency=consistency, exchange=None))
    wait_for_steps(run, 5)
    for rank in (0, 2):
        run.kill(rank)
    assert run.ended().status == 0, run.text()
    assert (state(run.directory), sorted(lost(run)), samples_used(run)) == ("finished", [0, 2], all_samples(STEPS))


@pytest.mark.slow
def test_stopped_worker_is_given_up_and_killed_and_the_run_goes_on(launch):
    text = session(
        steps=100_000, workers=2, pace_s=0.02, consistency="ssp", exchange=ONE, suspect_after_s=1, give_up_after_s=2
    )
    run = launch("train", text)
    wait_for_steps(run, 5)
    victim = psutil.Process(run.pid(1))
    run.kill(rank=1, number=signal.SIGSTOP)
    run.wait_until(lambda: lost(run) == [1])
    run.wait_until(lambda: not lives(victim))
    at = steps(run)
    run.wait_until(lambda: steps(run) > at + 20)
    run.process.send_signal(signal.SIGINT)
    assert run.ended().status == 130, run.text()
    assert state(run.directory) == "stopped"


@pytest.mark.slow  # tests/simulation has such ends
@pytest.mark.parametrize(
    "consistency", ["{name: backup, k: 1}", pytest.param("{name: ssp, staleness: 200}", marks=pytest.mark.slow)]
)
def test_worker_that_is_stopped_near_the_end_is_given_up_and_the_run_finishes(launch, consistency):
    text = session(
        steps=STEPS, workers=2, pace_s=0.02, consistency=consistency, exchange=ONE, suspect_after_s=1, give_up_after_s=2
    )
    run = launch("train", text)
    wait_for_steps(run, STEPS - 20)
    run.kill(rank=0, number=signal.SIGSTOP)
    assert run.ended().status == 0, run.text()
    assert (state(run.directory), lost(run), samples_used(run)) == ("finished", [0], all_samples(STEPS))


@pytest.mark.slow
@pytest.mark.parametrize("consistency", ["bsp", "async"])
def test_killed_server_without_a_replica_ends_the_run_with_its_name_and_resume_completes_it(launch, consistency):
    run = launch("train", session(steps=STEPS, workers=2, pace_s=0.02, consistency=consistency, exchange=TWO))
    wait_for_steps(run, 25)
    pid = server_pid(run, 1)
    os.kill(pid, signal.SIGKILL)
    ended = run.ended(at_most_s=10)
    assert ended.status == 4
    message = ended.err.splitlines()
    assert message[0].startswith(
        f"server 1 (host {socket.gethostname()}, process {pid}) was killed by SIGKILL, and nobody else keeps"
    )
    assert message[-2] == "log: runs/it/logs/server-1.log"
    assert message[-1].endswith(": volary resume it")
    assert "Traceback" not in ended.err
    again = launch("resume", "it")
    assert again.ended().status == 0, again.text()
    assert (state(run.directory), samples_used(run)) == ("finished", all_samples(STEPS))


@pytest.mark.slow
def test_stopped_server_is_missed_and_its_replica_goes_on(launch):
    run = launch("train", session(workers=2, pace_s=0.02, consistency="ssp", exchange=REPLICATED))
    wait_for_steps(run, 5)
    victim = psutil.Process(server_pid(run, 0))
    victim.suspend()
    run.wait_until(lambda: events(run.directory, "server_lost"))
    run.wait_until(lambda: not lives(victim))
    at = steps(run)
    run.wait_until(lambda: steps(run) > at + 20)
    run.process.send_signal(signal.SIGINT)
    assert run.ended().status == 130, run.text()


@pytest.mark.slow
def test_killed_worker_ends_a_bsp_run_over_servers_as_it_does_any_other(launch):
    run = launch("train", session(steps=STEPS, workers=2, pace_s=0.02, exchange=TWO))
    wait_for_steps(run, 25)
    run.kill(rank=1)
    ended = run.ended(at_most_s=10)
    assert ended.status == 4
    assert f"rank 1 (host {socket.gethostname()}, process " in ended.err.splitlines()[0]
    assert "was killed by SIGKILL" in ended.err.splitlines()[0]
    again = launch("resume", "it")
    assert again.ended().status == 0, again.text()
    assert samples_used(run) == all_samples(STEPS)


@pytest.mark.slow
def test_last_worker_that_dies_ends_the_run(launch):
    run = launch("train", session(workers=2, pace_s=0.02, consistency="async", exchange=ONE))
    wait_for_steps(run, 5)
    run.kill(rank=0)
    run.wait_until(lambda: lost(run) == [0])
    os.kill(json.loads(info(run)["pids"])[-1], signal.SIGKILL)
    ended = run.ended(at_most_s=10)
    assert ended.status == 4
    assert ended.err.splitlines()[0] == "no worker is left"


@pytest.mark.slow
@pytest.mark.parametrize("consistency", ["ssp", "async"])
def test_workers_that_are_all_told_to_terminate_stop_the_run_with_a_checkpoint_of_all_they_did(launch, consistency):
    run = launch("train", session(steps=STEPS, workers=2, pace_s=0.02, consistency=consistency, exchange=ONE))
    wait_for_steps(run, 5)
    for rank in (0, 1):
        run.kill(rank, signal.SIGTERM)
    assert run.ended().status == 130, run.text()
    assert (state(run.directory), lost(run)) == ("stopped", [])
    assert Checkpoints(run.directory.checkpoints).steps()[-1] == steps(run)
    again = launch("resume", "it")
    assert again.ended().status == 0, again.text()
    assert samples_used(run) == all_samples(STEPS)


@pytest.mark.slow
@pytest.mark.parametrize("exchange", [TWO, COLOCATED])
def test_killed_driver_leaves_nothing(launch, exchange):
    run = launch("train", session(workers=2, pace_s=0.02, consistency="async", exchange=exchange))
    wait_for_steps(run, 5)
    run.started |= descendants(run.process.pid)
    assert len(run.started) >= 5
    joining = launch("join", "it")
    run.wait_until(lambda: events(run.directory, "joined"))
    joining.started |= descendants(joining.process.pid)
    run.process.kill()
    assert run.ended(at_most_s=10).status == -signal.SIGKILL  # and nothing that it started lives
    assert joining.ended(at_most_s=10).status == 4
    assert state(run.directory) == "lost"


@pytest.mark.slow
def test_worker_that_dies_takes_its_colocated_server_along_and_its_replica_goes_on(launch):
    run = launch("train", session(steps=STEPS, workers=3, pace_s=0.02, consistency="async", exchange=COLOCATED))
    wait_for_steps(run, 5)
    run.kill(rank=1)
    assert run.ended().status == 0, run.text()
    assert lost(run) == [1]
    assert [event.data["server"] for event in events(run.directory, "server_lost")] == [1]
    assert samples_used(run) == all_samples(STEPS)


@pytest.mark.slow  # its sentence is one with that of an all-reduce, which is tested always
def test_loss_that_is_not_a_number_ends_a_served_run_with_one_sentence_and_advice_that_can_help(launch):
    # without checkpoints: which there are depends on how far the other worker got before this one began
    file = session(consistency="ssp", exchange=TWO, fault="nan", at=5)
    ended = launch("train", file, "checkpoint.every=never").ended()
    assert ended.status == 6
    assert ended.err.splitlines() == [
        "the loss of rank 1 is NaN or infinite at step 5",
        "resumed with the same settings it diverges again; lower the learning rate: "
        "volary train runs/it/session.yaml optimizer.lr=0.025 run.name=it-2",
        "or clip gradients (train.clip_value=1), or leave such batches out (train.on_nonfinite=skip)",
    ]
