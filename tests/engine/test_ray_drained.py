"""A node that Ray drains: the run that has workers there saves, ends, and resumes elsewhere."""

from __future__ import annotations

import json
import secrets
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from engine.test_ray import RAY_START, START_S, free_port, has_cpus
from faults._queue import found, submit, until
from faults._running import BUSY, events, last_step, running, session, state
from volary.cli.command.main import run as command
from volary.jobs.table import QueueTable, queue_folder

NODES = "import json, sys, ray; ray.init(sys.argv[1], log_to_driver=False); print(json.dumps(ray.nodes()))"


class Cluster:
    """A head without CPUs, and nodes of two that are added; all on this machine."""

    def __init__(self, folder: str, stack: ExitStack) -> None:
        self._folder, self._stack = folder, stack
        self.address = f"127.0.0.1:{free_port()}"
        port = self.address.rpartition(":")[2]
        quiet = ["--include-dashboard=false", f"--temp-dir={folder}", "--disable-usage-stats"]
        self._start("--head", "--port", port, "--num-cpus=0", *quiet, name="head")
        until(lambda: self._nodes() is not None, START_S)

    def add_node(self, name: str) -> str:
        """A node of two CPUs; its number."""
        before = {one["NodeID"] for one in self._nodes() or []}
        self._start("--address", self.address, "--num-cpus=2", "--disable-usage-stats", name=name)
        until(lambda: has_cpus(self.address, 2 * len(before)), START_S)
        (new,) = {one["NodeID"] for one in self._nodes() or []} - before
        return str(new)

    def drain(self, node: str) -> None:
        """As a machine that is taken away in ten minutes."""
        words = ["drain-node", "--address", self.address, "--node-id", node, "--reason-message=taken away"]
        words += ["--reason=DRAIN_NODE_REASON_PREEMPTION", "--deadline-remaining-seconds=600"]
        subprocess.run([sys.executable, "-c", RAY_START, *words], check=True, timeout=BUSY * START_S)

    def _start(self, *words: str, name: str) -> None:
        command = (sys.executable, "-c", RAY_START, "start", "--node-ip-address=127.0.0.1", "--block", *words)
        self._stack.enter_context(running(*command, name=name))

    def _nodes(self) -> list[dict[str, object]] | None:
        words = [sys.executable, "-c", NODES, self.address]
        said = subprocess.run(words, capture_output=True, text=True, timeout=BUSY * START_S, check=False)
        return None if said.returncode else json.loads(said.stdout.splitlines()[-1])


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
