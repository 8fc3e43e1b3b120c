"""Ray's cluster on this machine: a head, and nodes that come, are drained and are lost."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from contextlib import ExitStack
from typing import Any

from faults._queue import until
from faults._running import BUSY, Run, running
from volary.actors.cluster import ActorSettings
from volary.engine.launchers import ray_jobs
from volary.engine.ray import ACTORS

START_S = 60
RAY_START = "import sys; from ray.scripts.scripts import main; sys.argv[0] = 'ray'; main()"
NODES = "import json, sys, ray; ray.init(sys.argv[1], log_to_driver=False); print(json.dumps(ray.nodes()))"


def has_cpus(address: str, count: int) -> bool:
    """Whether a cluster that was just started has its nodes: it answers, and says that it is up, before."""
    command = [*ACTORS, ActorSettings(count=0, address=address).words()]
    said = subprocess.run(command, capture_output=True, text=True, timeout=BUSY * START_S, check=False).stdout
    return bool(said) and json.loads(said.splitlines()[-1]).get("CPU", 0) >= count


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as plug:
        return int(plug.getsockname()[1])


class Cluster:
    """A head without CPUs, and nodes that are added; all on this machine. takes_jobs: with a job server."""

    def __init__(self, folder: str, stack: ExitStack, *, takes_jobs: bool = False) -> None:
        self._folder, self._stack = folder, stack
        self._started: dict[str, Run] = {}
        self.address = f"127.0.0.1:{free_port()}"
        port = self.address.rpartition(":")[2]
        quiet = [f"--include-dashboard={str(takes_jobs).lower()}", f"--temp-dir={folder}", "--disable-usage-stats"]
        jobs_port = free_port()
        self.job_server = f"http://127.0.0.1:{jobs_port}"
        self._start("--head", "--port", port, "--num-cpus=0", f"--dashboard-port={jobs_port}", *quiet, name="head")
        until(lambda: self._nodes() is not None, START_S)
        if takes_jobs:
            until(lambda: ray_jobs.refusal(self.job_server) is None, START_S)

    def add_node(self, name: str, cpus: int = 2) -> str:
        """A node that is up; its number."""
        before = {one["NodeID"] for one in self._nodes() or []}
        words = ("--address", self.address, f"--num-cpus={cpus}", "--disable-usage-stats")
        self._started[name] = self._start(*words, name=name)

        def new() -> list[str]:
            there = [one for one in self._nodes() or [] if one["NodeID"] not in before]
            return [str(one["NodeID"]) for one in there if one["Resources"].get("CPU") == cpus]

        (node,) = until(new, START_S)
        return str(node)

    def drain(self, node: str) -> None:
        """As a machine that is taken away in ten minutes."""
        words = ["drain-node", "--address", self.address, "--node-id", node, "--reason-message=taken away"]
        words += ["--reason=DRAIN_NODE_REASON_PREEMPTION", "--deadline-remaining-seconds=600"]
        subprocess.run([sys.executable, "-c", RAY_START, *words], check=True, timeout=BUSY * START_S)

    def process(self, name: str) -> subprocess.Popen[bytes]:
        """The one that all others of the node are below."""
        return self._started[name].process

    def lose(self, name: str) -> None:
        """Let the node end as a machine that is switched off: all that runs there is killed."""
        self._started[name].end()

    def _start(self, *words: str, name: str) -> Run:
        own = ("--node-ip-address=127.0.0.1", f"--dashboard-agent-listen-port={free_port()}", "--block")
        command = (sys.executable, "-c", RAY_START, "start", *own, *words)
        return self._stack.enter_context(running(*command, name=name))

    def _nodes(self) -> list[dict[str, Any]] | None:
        words = [sys.executable, "-c", NODES, self.address]
        said = subprocess.run(words, capture_output=True, text=True, timeout=BUSY * START_S, check=False)
        return None if said.returncode else json.loads(said.stdout.splitlines()[-1])
