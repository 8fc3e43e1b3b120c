"""Nodes of Ray's that are drained, or lost, with workers of a run."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from engine._ray_cluster import Cluster
from engine._recovered import assert_trained_on_without
from faults._queue import found, submit, until
from faults._running import VOLARY, descendants, events, last_step, running, session, state
from volary.cli.command.main import run as command
from volary.jobs.table import QueueTable, queue_folder


@pytest.fixture
def cluster(ray: None, short: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Cluster]:
    monkeypatch.setenv("RAY_AUTH_MODE", "token")
    monkeypatch.setenv("RAY_AUTH_TOKEN", secrets.token_hex(32))
    monkeypatch.setenv("RAY_worker_niceness", "0")  # the machine may be busy
    monkeypatch.setenv("XDG_STATE_HOME", str(Path("state").absolute()))
    with ExitStack() as stack:
        yield Cluster(short, stack)
        with QueueTable(queue_folder()) as table:
            until(lambda: not table.has_runner(), 20)


@pytest.mark.slow  # starts a cluster of three nodes
@pytest.mark.timeout(1800)
def test_a_run_on_a_node_that_ray_drains_saves_and_resumes_on_another_without_a_loss(cluster):
    session(pace_s=0.02)
    first = cluster.add_node("first")
    submit("--retries", 0, "engine=ray", f"engine.address={cluster.address}", "strategy.startup_timeout_s=600")
    until(lambda: last_step(found("it")) > 20, 120)
    cluster.add_node("second")
    cluster.drain(first)
    (resumed,) = until(lambda: events(found("it"), "resumed"), 120)
    (stopped,) = events(found("it"), "stopped")
    assert 20 < stopped.data["step"] == resumed.data["from_step"]
    until(lambda: last_step(found("it")) > resumed.data["from_step"], 120)
    assert command(["stop", "it"]) == 0
    until(lambda: state(found("it")) == "stopped", 120)


@pytest.mark.slow  # starts a cluster of three nodes
@pytest.mark.timeout(1800)
def test_a_run_that_recovers_trains_on_from_memory_without_a_node_that_is_lost(cluster):
    for name in ("first", "second"):
        cluster.add_node(name, cpus=1)
    settings = ["engine=ray", f"engine.address={cluster.address}", "strategy.startup_timeout_s=600"]
    with running(*VOLARY, "train", session(steps=400, pace_s=0.03), *settings, "strategy.recover=memory") as run:
        run.wait_for_step(25)
        there = {one.pid for one in descendants(cluster.process("second").pid)}
        (lost,) = (rank for rank in (0, 1) if run.pid(rank) in there)
        cluster.lose("second")
        assert run.ended(at_most_s=90).status == 0, run.text()
    assert_trained_on_without(lost, run.directory, 400)
