"""Launchers whose machines do not see the run's directory: what a run writes comes home all the same."""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from engine import _sshd
from engine._engines import mpirun
from engine._slurmd import started
from engine.conftest import plain_ssh
from engine.test_ray import RAY_START, START_S, free_port, has_cpus
from faults._running import VOLARY, Run, descendants, events, last_step, lives, running, session, state
from volary.run.checkpoints import Checkpoints

pytestmark = pytest.mark.slow  # real launchers, and file systems of their own
STEPS = 60


def why_not() -> str:
    if os.geteuid() != 0:
        return "a file system of its own for a launcher needs root"
    tried = subprocess.run(["unshare", "--mount", "true"], capture_output=True, check=False)
    return "unshare --mount is not allowed here" if tried.returncode else ""


@pytest.fixture
def hidden() -> list[str]:
    """A process that this command starts sees no runs in the current folder."""
    if reason := why_not():
        pytest.skip(reason)
    runs = Path("runs").absolute()
    runs.mkdir()
    return ["unshare", "--mount", "sh", "-c", 'mount -t tmpfs none "$0" && exec "$@"', str(runs)]


@pytest.fixture
def interface() -> str:
    """An address of this machine that is not loopback: the driver listens there, as it does for other machines."""
    for name, entries in psutil.net_if_addrs().items():
        for entry in entries:
            if entry.family == socket.AF_INET and not entry.address.startswith("127."):
                return f"strategy.interface={name}"
    pytest.skip("there is no network interface but loopback")


def shows_all(run: Run) -> None:
    """The run has finished, and its directory has all that a run writes."""
    assert run.ended(at_most_s=90).status == 0, run.text()
    assert (state(run.directory), last_step(run.directory)) == ("finished", STEPS)
    checkpoints = Checkpoints(run.directory.checkpoints)
    assert {checkpoints.verify(step).world_size for step in checkpoints.steps()} == {2}
    assert [event.data["step"] for event in events(run.directory, "checkpoint")] == [20, 40, 60]


def keeps_its_key(run: Run) -> None:
    """No process has it in its arguments."""
    run.wait_for_step(5)
    words = [" ".join(one.cmdline()) for one in descendants(os.getpid()) if lives(one)]
    assert run.directory.key().hex() not in " ".join(words)


@pytest.mark.parametrize("name", ["openmpi", "mpich"])
def test_processes_of_mpirun_send_home_what_they_write(name, hidden, interface):
    if not Path(program := mpirun(name)).exists():
        pytest.skip(f"{name} is not installed: make engines")
    words = " ".join(f"'{word}'" for word in [*hidden, program])
    Path("mpirun").write_text(f'#!/bin/sh\nexec {words} "$@"\n')
    Path("mpirun").chmod(0o755)
    engine = ["engine=mpi", f"engine.mpirun={Path('mpirun').absolute()}", interface]
    with running(*VOLARY, "train", session(steps=STEPS, pace_s=0.02), *engine) as run:
        keeps_its_key(run)
        shows_all(run)


def test_a_node_of_slurm_s_sends_home_what_another_writes_into_the_run(
    hidden, interface, tmp_path_factory, monkeypatch
):
    with contextlib.ExitStack() as down:
        cluster = started(tmp_path_factory.mktemp("slurm"), down, hidden)
        if cluster.why_not:
            pytest.skip(cluster.why_not)
        monkeypatch.setenv("SLURM_CONF", str(cluster.conf))
        command = ["salloc", "--no-shell", "--nodes=2", "--ntasks=2", "--ntasks-per-node=1"]
        said = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stderr
        (job,) = re.findall(r"Granted job allocation (\d+)", said)
        monkeypatch.setenv("SLURM_JOB_ID", job)
        down.callback(subprocess.run, ["scancel", job], check=True, timeout=30)
        with running(*VOLARY, "train", session(steps=STEPS, pace_s=0.02), "engine=slurm", interface) as run:
            keeps_its_key(run)
            shows_all(run)


@pytest.fixture
def ssh_to_others(
    hidden: list[str], tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> Iterator[None]:
    """`ssh alpha` and `ssh beta` reach an sshd that sees no runs."""
    if reason := _sshd.why_not():
        pytest.skip(reason)
    with _sshd.sshd(tmp_path_factory.mktemp("sshd"), *hidden) as config:
        shutil.copy(config, "ssh_config")
        monkeypatch.setenv("PATH", plain_ssh())
        yield


def test_workers_of_torchrun_s_agents_on_several_machines_send_home_what_they_write(ssh_to_others):
    engine = ["engine=torchrun", "engine.nodes=[alpha,beta]"]
    with running(*VOLARY, "train", session(steps=STEPS, pace_s=0.02), *engine) as run:
        keeps_its_key(run)
        shows_all(run)
    for rank in (0, 1):
        assert run.directory.log(rank).exists()


@pytest.fixture
def ray_cluster(ray: None, hidden: list[str], short: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The address of one whose only node with CPUs sees no runs, and that asks for a token."""
    monkeypatch.setenv("RAY_AUTH_MODE", "token")
    monkeypatch.setenv("RAY_AUTH_TOKEN", secrets.token_hex(32))
    port = free_port()
    address = f"127.0.0.1:{port}"
    quiet = ["--block", "--disable-usage-stats", "--node-ip-address=127.0.0.1"]
    head = ["--head", f"--port={port}", "--num-cpus=0", "--include-dashboard=false", f"--temp-dir={short}"]
    node = [f"--address={address}", "--num-cpus=2"]
    start = [sys.executable, "-c", RAY_START, "start", *quiet]
    with running(*start, *head, name="head") as first:
        first.wait_until(lambda: has_cpus(address, 0), START_S)
        with running(*hidden, *start, *node, name="node") as second:
            second.wait_until(lambda: has_cpus(address, 2), START_S)
            yield address


def test_actors_of_ray_s_send_home_what_they_write_and_run_the_code_that_is_brought(ray_cluster, interface):
    file = session(steps=STEPS, pace_s=0.02)
    engine = ["engine=ray", f"engine.address={ray_cluster}", "engine.bring=[net.py]", interface]
    with running(*VOLARY, "train", file, *engine) as run:
        shows_all(run)
