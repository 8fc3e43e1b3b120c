"""The queue while everything that carries it out is killed at random, and runs that give way at random steps."""

from __future__ import annotations

import contextlib
import random
import time
from pathlib import Path

import psutil  # type: ignore[import-untyped]
import pytest

from faults._queue import ALL_CORES, driver, found, kill_all, runner, said, submit, until
from faults._running import BUSY, events, last_step, outcome, session, state
from volary.cli.command.main import run as command
from volary.jobs.queue import LocalQueue

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("queue")]
RUNS = 30
KILLS = 30
PASS_S = 200.0  # on a quiet machine


@pytest.mark.timeout(BUSY * PASS_S + 300)
def test_thirty_runs_pass_while_runner_drivers_and_workers_are_killed_at_random(queue):
    chance = random.Random(38)
    session(steps=40, workers=1, pace_s=0.02)
    submit("run.name=alone")  # on one core, as the others: sums by as many threads have the same bits
    until(lambda: state(found("alone")) == "finished")
    names = [f"r{number}" for number in range(RUNS)]
    for name in names:
        submit(f"run.name={name}", "--retries", 1000, "checkpoint.every=5 steps")
    killed_at, kills = dict.fromkeys(names, 0), 0
    end = time.monotonic() + BUSY * PASS_S
    while left := [name for name in names if state(found(name)) != "finished"]:
        assert time.monotonic() < end, said()
        failed = [name for name in left if state(found(name)) == "failed"]
        assert not {str(found(name).path) for name in failed} - queue.runs(), said()
        driven = [name for name in left if found(name).is_live() and last_step(found(name)) > killed_at[name]]
        if driven and kills < KILLS:
            kills, victim = kills + 1, chance.choice(driven)
            killed_at[victim] = last_step(found(victim))
            with contextlib.suppress(psutil.Error, IndexError, ValueError):  # it has ended meanwhile
                _kill(chance.choice(["runner", "driver", "worker"]) if kills != KILLS // 2 else "all", victim, queue)
        time.sleep(0.05)
    assert kills == KILLS
    undisturbed = outcome(found("alone"))
    assert all(outcome(found(name)).continues(undisturbed) for name in names)


def _kill(what: str, name: str, queue: LocalQueue) -> None:
    if what == "runner":
        runner().kill()
    elif what == "driver":
        driver(name).kill()
    elif what == "worker":
        random.Random(name).choice(driver(name).children(recursive=True)).kill()
    else:  # as a machine that is started anew
        running = [Path(row.entry.run).name for row in queue.rows() if row.entry.state != "waiting"]
        kill_all(runner(), *(driver(one) for one in running if found(one).is_live()))


@pytest.mark.parametrize(
    ("consistency", "exchange"),
    [("bsp", ""), ("{name: local, period: 5}", ""), ("gossip", ""), ("bsp", "server")],
    ids=["bsp", "local", "gossip", "served"],
)
@pytest.mark.timeout(1200)
def test_a_run_that_gives_way_five_times_at_random_steps_equals_one_that_never_did(consistency, exchange):
    chance = random.Random(consistency + exchange)
    session(steps=400, workers=2, pace_s=0.02, consistency=consistency, exchange=exchange)
    assert command(["train", "session.yaml", "--quiet", "run.name=alone"]) == 0
    submit(ALL_CORES)
    for number in range(1, 6):
        step = chance.randint(60 * number, 60 * number + 40)
        until(lambda step=step: last_step(found("it")) >= step)
        dear = f"dear-{number}"
        submit(ALL_CORES, "--priority", 1, f"run.name={dear}", "train.steps=1")
        until(lambda dear=dear: state(found(dear)) == "finished")
    until(lambda: state(found("it")) == "finished")
    stopped, resumed = (events(found("it"), kind) for kind in ("stopped", "resumed"))
    assert [one.data["step"] for one in stopped] == [one.data["from_step"] for one in resumed]
    assert len(stopped) == 5
    assert _weights("it") == _weights("alone") != {}


def _weights(name: str) -> dict[str, bytes]:
    """The bytes of the final weights, by file: servers write one each."""
    newest = max(found(name).checkpoints.glob("step-*"))
    return {file.name: file.read_bytes() for file in newest.glob("model*.safetensors")}
