"""Promises of every engine about a whole run, with its real launcher: weights, faults and ends are those of `local`."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import socket
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import psutil
import pytest

from engine._engines import TRIED, Tried
from engine._recovered import assert_trained_on_without
from faults._running import (
    VOLARY,
    Outcome,
    Run,
    descendants,
    events,
    last_step,
    learnt,
    life_of,
    lives,
    outcome,
    running,
    session,
    state,
)
from volary.comm.groups.listeners import ListeningSocket, listeners
from volary.errors import WorkerFailed
from volary.run.database.reader import RunReader

STEPS = 60
ENDED_WITHIN_S = 10
STARTS = "strategy.startup_timeout_s=600"  # no promise is about how long a busy machine takes to start a cluster
Start = Callable[..., Run]


@pytest.fixture(params=[pytest.param(one, marks=[pytest.mark.slow] if one.needs else [], id=one.name) for one in TRIED])
def engine(request: pytest.FixtureRequest) -> Tried:
    tried: Tried = request.param
    if tried.needs:
        request.getfixturevalue(tried.needs)
    if (reason := tried.why_not()) is not None:
        pytest.skip(f"{tried.name}: {reason}")
    return tried


@pytest.fixture(scope="module")
def local(tmp_path_factory: pytest.TempPathFactory) -> Outcome:
    """The session's result on engine `local`."""
    home = Path.cwd()
    os.chdir(tmp_path_factory.mktemp("local"))
    try:
        with running(*VOLARY, "train", session(steps=STEPS)) as run:
            assert run.ended().status == 0, run.text()
            return outcome(run.directory)
    finally:
        os.chdir(home)


@pytest.fixture
def start(engine: Tried) -> Iterator[Start]:
    """`start(*overrides, **network)`: a run of the network on the engine, ended with the test."""
    started: list[Run] = []

    def begin(*overrides: str, **network: object) -> Run:
        file = session(**network)  # type: ignore[arg-type]
        started.append(Run([*VOLARY, "train", file, STARTS, *engine.settings, *overrides]))
        return started[-1]

    yield begin
    for run in started:
        run.end()


def driver(run: Run) -> psutil.Process:
    """The process that drives the run, in a job or here."""
    with RunReader(run.directory) as reader:
        return psutil.Process(json.loads(reader.info()["pids"])[0])


def launcher(run: Run, engine: Tried) -> psutil.Process:
    """The child of the driver that starts the workers."""
    log = f"{engine.launcher.replace(' ', '-')}-workers.log"
    (found,) = [
        child for child in driver(run).children() if any(Path(file.path).name == log for file in child.open_files())
    ]
    return found


def reached_from_outside(ends: Iterable[ListeningSocket]) -> list[ListeningSocket]:
    """The sockets that answer at an address of this machine that others know."""
    addresses = {
        entry.address
        for entries in psutil.net_if_addrs().values()
        for entry in entries
        if entry.family == socket.AF_INET and not entry.address.startswith("127.")
    }
    found = []
    for end in ends:
        for address in addresses:
            with socket.socket() as plug, contextlib.suppress(OSError):
                plug.settimeout(0.5)
                plug.connect((address, end.port))
                found.append(end)
    return found


def reached(run: Run, rank: int) -> int:
    """The newest step that is recorded of a worker; 0 before the first."""
    with RunReader(run.directory) as reader:
        return max((row.step for row in reader.steps(rank=rank)), default=0)


def who(run: Run, rank: int, pid: int) -> str:
    return f"rank {rank} (host {socket.gethostname()}, process {pid}) "


def test_weights_equal_those_of_engine_local_and_nobody_else_can_listen_or_read_the_key(start, engine, local):
    run = start(steps=STEPS, pace_s=0.02)
    run.wait_for_step(5)
    processes = [psutil.Process(run.process.pid), *descendants(run.process.pid)]
    processes += [psutil.Process(run.pid(rank)) for rank in (0, 1)]  # they may be another process's children
    own = launcher(run, engine).pid
    guarded = {own, *(one.pid for one in descendants(own))} if engine.guarded else set()
    assert not reached_from_outside(listeners({one.pid for one in processes} - guarded))
    key = run.directory.key().hex()
    assert key not in " ".join(word for one in processes if lives(one) for word in one.cmdline())
    assert run.ended().status == 0, run.text()
    assert outcome(run.directory) == local


@pytest.mark.slow
def test_worker_that_is_killed_is_named_with_its_host_and_step(start, engine):
    run = start(pace_s=0.01)
    run.wait_for_step(10)
    at = run.wait_until(lambda: reached(run, 1))  # what it says of itself comes later on a busy machine
    victim = run.pid(1)
    os.kill(victim, signal.SIGKILL)
    ended = run.ended(at_most_s=ENDED_WITHIN_S)
    assert ended.status == 4
    words = f"^{re.escape(who(run, 1, victim))}(?:died|was killed by SIGKILL); last step ([0-9]+), in "
    (said,) = re.findall(words, ended.err, re.MULTILINE)
    assert int(said) >= at
    assert "rank 0 ended because of it" in ended.err
    assert "volary resume it" in ended.err


@pytest.mark.slow
def test_what_a_worker_raises_is_the_verdict(start, engine):
    ended = start(fault="raise own").ended()
    assert ended.status == WorkerFailed.exit_code
    assert re.match(r"net\.py:\d+ in raise_another_error: KeyError: 'of rank 1 alone'\n", ended.err), ended.err
    assert f"  rank 1 (host {socket.gethostname()}) at step 5, in forward\n" in ended.err


@pytest.mark.slow
def test_worker_that_is_stopped_is_named_by_its_heartbeat(start, engine):
    run = start("strategy.suspect_after_s=1", "strategy.give_up_after_s=3", pace_s=0.01)
    run.wait_for_step(10)
    victim = run.pid(1)
    os.kill(victim, signal.SIGSTOP)
    ended = run.ended(at_most_s=ENDED_WITHIN_S)
    assert ended.status == 4
    assert ended.err.startswith(f"{who(run, 1, victim)}has been silent for "), ended.err


@pytest.mark.slow
def test_run_that_is_interrupted_saves_leaves_nothing_and_resumes_on_another_engine_bit_for_bit(start, engine, local):
    run = start(steps=STEPS, pace_s=0.03)
    run.wait_for_step(25)
    run.process.send_signal(signal.SIGINT)
    ended = run.ended(gone_within_s=ENDED_WITHIN_S)
    assert (ended.status, state(run.directory)) == (130, "stopped"), run.text()
    assert 25 <= last_step(run.directory) < STEPS
    with running(*VOLARY, "resume", "it", "engine=local") as again:
        assert again.ended().status == 0, again.text()
    assert outcome(run.directory) == local


@pytest.mark.slow
def test_run_that_began_on_another_engine_is_resumed_on_this_one_bit_for_bit(engine, local):
    other = ["engine=local"] if engine.name == "torchrun" else ["engine=torchrun"]
    with running(*VOLARY, "train", session(steps=STEPS, pace_s=0.03), STARTS, *other) as run:
        run.wait_for_step(25)
        run.process.send_signal(signal.SIGINT)
        assert run.ended(gone_within_s=ENDED_WITHIN_S).status == 130, run.text()
    assert 25 <= last_step(run.directory) < STEPS
    with running(*VOLARY, "resume", "it", *engine.settings) as again:
        assert again.ended(at_most_s=90).status == 0, again.text()
    assert f"name: {engine.settings[0].removeprefix('engine=')}" in run.directory.session.read_text()
    assert outcome(run.directory) == local


@pytest.mark.slow
def test_launcher_that_is_killed_is_named_and_its_workers_end(start, engine):
    run = start(pace_s=0.01)
    run.wait_for_step(10)
    victim = launcher(run, engine)
    victim.kill()
    ended = run.ended(at_most_s=ENDED_WITHIN_S, gone_within_s=ENDED_WITHIN_S)
    assert ended.status == 4
    words = f"{engine.launcher} (host {socket.gethostname()}, process {victim.pid}) was killed by SIGKILL"
    assert ended.err.startswith(f"{words}, and its workers ended with it; last step "), ended.err


@pytest.mark.slow
def test_workers_end_soon_after_their_driver_is_killed_and_the_run_can_be_resumed(start, engine):
    run = start(pace_s=0.02)
    at = run.wait_for_step(25)
    driver(run).kill()
    ended = run.ended(gone_within_s=ENDED_WITHIN_S + 5)
    words = r"job \d+ of slurm ended \(.+\), and its driver left no word; last step \d+\n" if engine.queued else ""
    assert re.search(words or "is gone, without a word; its workers have ended\n", ended.err), ended.err
    (saved,) = re.findall(r"^resume from step (\d+): volary resume it$", ended.err, re.MULTILINE)
    assert int(saved) >= at - 20


@pytest.mark.slow
def test_worker_that_leaves_with_status_0_and_no_verdict_is_a_failure(start, engine):
    ended = start(fault="os._exit 0").ended()
    assert ended.status == 4
    assert re.match(r"rank 1 \(host .*\) (died|exited with status 0 .*); last step [0-4], in ", ended.err), ended.err


@pytest.mark.slow
def test_run_is_resumed_by_itself_as_often_as_its_engine_may_restart_it(start, engine, local):
    run = start("engine.max_restarts=1", steps=STEPS, pace_s=0.03)
    run.wait_for_step(25)
    os.kill(run.pid(1), signal.SIGKILL)
    run.wait_until(lambda: life_of(run.directory) == 1)
    assert run.ended(at_most_s=90).status == 0, run.text()
    assert outcome(run.directory).weights == local.weights
    assert any(event.data["text"].startswith("restart 1 of 1: rank 1 (") for event in events(run.directory, "warning"))


def test_more_workers_than_fit_are_refused_before_anything_starts(start, engine):
    many = ("strategy.workers=3000", "data.batch_size=3000", "data.source.samples=3000")
    ended = start(*many).ended()
    assert ended.status == 2
    assert "engine: " in ended.err
    assert not Path("runs").exists()


@pytest.mark.slow
def test_elastic_run_goes_on_without_a_worker_that_is_killed(start, engine):
    run = start(steps=80, pace_s=0.05, consistency="async", exchange="{name: server, servers: 1}")
    run.wait_for_step(1)
    run.wait_until(lambda: all(learnt(run, rank) for rank in (0, 1)))
    os.kill(run.pid(1), signal.SIGKILL)
    ended = run.ended(at_most_s=90)
    assert (ended.status, state(run.directory)) == (0, "finished"), run.text()
    assert [event.rank for event in events(run.directory, "lost")] == [1]


@pytest.mark.slow
def test_run_that_recovers_trains_on_from_memory_without_a_worker_that_is_killed(start, engine):
    run = start("strategy.recover=memory", steps=STEPS, pace_s=0.03)
    run.wait_for_step(15)
    os.kill(run.pid(1), signal.SIGKILL)
    assert run.ended(at_most_s=90).status == 0, run.text()
    assert_trained_on_without(1, run.directory, STEPS)


LOOP = """
import sys

import yaml

import volary

def train(worker):
    return worker.rank, sys.argv[1:]

if __name__ == "__main__":
    engine = {"name": sys.argv[1], **{k: yaml.safe_load(v) for k, v in (one.split("=") for one in sys.argv[2:])}}
    print(volary.launch(train, workers=2, engine=engine).values)
"""


@pytest.mark.slow
def test_a_loop_of_one_s_own_is_launched_and_its_values_come_back(engine):
    Path("loop.py").write_text(LOOP)
    name, *settings = (one.removeprefix("engine=").removeprefix("engine.") for one in engine.settings)
    with running(sys.executable, "loop.py", name, *settings, name="train-1") as run:
        ended = run.ended()
    assert ended.status == 0, run.text()
    assert ended.out.splitlines()[-1] == str([(rank, [name, *settings]) for rank in (0, 1)])
