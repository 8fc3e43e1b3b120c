"""A long run whose workers die and come at random: nothing drifts apart, and nothing grows."""

from __future__ import annotations

import json
import random
import signal
import statistics
import time

import psutil
import pytest

from faults._running import Run, events, learnt, session, state, steps
from volary.run.checkpoints import Checkpoints
from volary.run.database.reader import RunReader

SOAK_S = 20 * 60
FEWEST, MOST = 1, 4  # workers at a time
GROWTH = 1.1  # of the memory of driver and servers, from the first quarter to the last
SESSION = {
    "workers": 3,
    "pace_s": 0.005,
    "consistency": "{name: async, push_every: 2, fetch_every: 3}",
    "exchange": "{name: server, servers: 2, replicas: 2}",
}


@pytest.mark.slow
@pytest.mark.timeout(SOAK_S + 300)
def test_async_run_with_random_kills_and_joins_keeps_its_clocks_consistent_and_its_memory_flat(launch):
    draw, until = random.Random(1), time.monotonic() + SOAK_S
    run = launch("train", session(**SESSION))
    run.wait_for_step(20)
    kept_bytes: list[int] = []
    killed = joined = 0
    while time.monotonic() < until:
        until_step = steps(run) + draw.randint(5, 100)
        run.wait_until(lambda step=until_step: steps(run) >= step)
        here = workers(run)
        if len(here) > FEWEST and (len(here) == MOST or draw.random() < 0.5):
            draw.choice(here).kill()
            killed += 1
            run.wait_until(lambda number=killed: len(events(run.directory, "lost")) == number)
        else:
            joined += 1
            launch("join", "it")
            run.wait_until(lambda number=joined: len(events(run.directory, "joined")) == number)
        kept_bytes.append(memory_bytes(run))
    run.process.send_signal(signal.SIGINT)
    assert run.ended().status == 130, run.text()
    assert state(run.directory) == "stopped"
    assert events(run.directory, "server_lost") == []

    # the last checkpoint is one cut: it exists only if every slice on every server has come to the same update
    checkpoints = Checkpoints(run.directory.checkpoints)
    newest = checkpoints.verify(checkpoints.steps()[-1])
    roster = json.loads((checkpoints.path(newest.step) / "roster.json").read_bytes())
    assert newest.step == steps(run)
    assert sum(end - start for _, start, end in roster["left"]["ranges"]) < 256

    quarter = len(kept_bytes) // 4
    first, last = statistics.median(kept_bytes[:quarter]), statistics.median(kept_bytes[-quarter:])
    print(f"{killed} killed, {joined} joined, {newest.step} steps, {first / 2**20:.0f} to {last / 2**20:.0f} MiB")
    assert last < GROWTH * first


def workers(run: Run) -> list[psutil.Process]:
    """The workers that live, of all that have done a step."""
    with RunReader(run.directory) as reader:
        info = reader.info()
    ranks, pids = map(int, json.loads(info["hosts"])), json.loads(info["pids"])[1:]
    at_work = [process_of(pid) for rank, pid in zip(ranks, pids, strict=True) if learnt(run, rank)]
    return [process for process in at_work if process is not None]


def memory_bytes(run: Run) -> int:
    """The memory of what lives as long as the run: the driver and the servers."""
    with RunReader(run.directory) as reader:
        pids = [run.process.pid, *json.loads(reader.info()["server_pids"])]
    return sum(process.memory_info().rss for process in map(process_of, pids) if process is not None)


def process_of(pid: int) -> psutil.Process | None:
    try:
        process = psutil.Process(pid)
        return None if process.status() == psutil.STATUS_ZOMBIE else process
    except psutil.NoSuchProcess:
        return None
