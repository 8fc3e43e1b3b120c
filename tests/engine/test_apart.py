"""Machines that a network alone joins, each with its own sshd: addresses of either kind, and a link that is cut."""

from __future__ import annotations

import os
import re
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import pytest

from engine import _sshd
from engine._engines import mpirun
from engine._recovered import assert_trained_on_without
from engine.conftest import plain_ssh
from faults._running import BUSY, SOURCE, VOLARY, last_step, session, state
from lab.conftest import why_not
from volary.lab import Lab
from volary.lab.jobs import Job
from volary.run.directory import RunDirectory

pytestmark = pytest.mark.slow  # network namespaces, sshd, two lives
PORT, STEPS = 2222, 400
MACHINES = ("here", "alpha", "beta")


def until(condition: Callable[[], object], words: Callable[[], str], at_most_s: float = 30) -> None:
    end = time.monotonic() + BUSY * at_most_s
    while not condition():
        assert time.monotonic() < end, words()
        time.sleep(0.1)


def addresses_of(lab: Lab, kind: str) -> list[str]:
    """The addresses of each machine; with IPv6 there are no others."""
    if kind == "IPv4":
        return [lab.topology.address(host) for host in range(3)]
    for host in range(3):
        lab.output(host, ["sh", "-c", "echo 0 > /proc/sys/net/ipv6/conf/eth0/disable_ipv6"])
        lab.output(host, ["ip", "-4", "address", "flush", "dev", "eth0"])
        lab.output(host, ["ip", "-6", "address", "add", f"fd00::{host + 1}/64", "dev", "eth0", "nodad"])
    return [f"fd00::{host + 1}" for host in range(3)]


def asked(engine: str) -> tuple[list[str], str]:
    """The settings that choose it, and the one that names machines."""
    if engine in MPI:
        return ["engine=mpi", f"engine.mpirun={mpirun(engine)}"], "engine.hosts"
    return [f"engine={engine}"], {"hosts": "engine.hosts", "torchrun": "engine.nodes"}[engine]


MPI = ("openmpi", "mpich")
SSH = [(engine, kind) for engine in ("hosts", "torchrun") for kind in ("IPv4", "IPv6")]


@dataclass(frozen=True)
class Apart:
    """A lab of machines of which the first starts runs on the others. said: what all of them print."""

    lab: Lab
    said: Path
    out: IO[bytes]
    variables: dict[str, str]
    names: tuple[str, str]

    def volary(self, *words: str) -> Job:
        """A command on the first machine."""
        return self.lab.start(0, [*VOLARY, *words], self.variables, self.out)

    def assert_trains_nowhere(self) -> None:
        """Nothing of the run is left on the others, soon."""
        busy = "ps -e -o args | grep -c '[v]olary.worker' || true"
        for host in (1, 2):
            until(lambda at=host: self.lab.output(at, ["sh", "-c", busy]).strip() == "0", self.said.read_text)


@contextmanager
def apart(engine: str, kind: str, short: str) -> Iterator[Apart]:
    """Three machines, two of them with an sshd; `engine` can be had. kind: of addresses. short: a folder."""
    if reason := why_not() or _sshd.why_not() or ("sshd needs root" if os.geteuid() else ""):
        pytest.skip(reason)
    if engine in MPI and not Path(mpirun(engine)).exists():
        pytest.skip(f"{engine} is not installed: make engines")
    said = Path("said")
    with Lab(hosts=3) as lab, said.open("wb") as out:
        addresses = addresses_of(lab, kind)
        listen = "0.0.0.0" if kind == "IPv4" else "::"
        names = [f"{name} {address}" for name, address in zip(MACHINES[1:], addresses[1:], strict=True)]
        server = _sshd.configured(Path.cwd(), PORT, listen, dict(zip(names, addresses[1:], strict=True)))
        # Open MPI names its folder by the process's number alone, and machines of a lab number theirs alike
        scratch = [Path(short, name) for name in MACHINES]
        for folder in scratch:
            folder.mkdir()
        for host in (1, 2):
            lab.start(host, [*server, "-o", f"SetEnv=TMPDIR={scratch[host]}"], output=out)
        ssh = [str(shutil.which("ssh")), "-F", "ssh_config", "-o", "ConnectionAttempts=20"]
        for name in MACHINES[1:]:
            lab.output(0, [*ssh, name, "true"], timeout_s=BUSY * 30)
        variables = {"PYTHONPATH": str(SOURCE), "TMPDIR": str(scratch[0]), "PATH": plain_ssh()}
        alpha, beta = addresses[1:] if engine in MPI else MACHINES[1:]
        yield Apart(lab, said, out, variables, (alpha, beta))


ON_MACHINES = pytest.mark.parametrize(("engine", "kind"), [*SSH, *((name, "IPv4") for name in MPI)])


@ON_MACHINES
def test_machine_that_is_cut_off_is_named_ends_what_it_runs_and_the_run_is_resumed_on_what_is_left(engine, kind, short):
    with apart(engine, kind, short) as there:
        (settings, machines), (alpha, beta) = asked(engine), there.names
        run = there.volary("train", session(steps=STEPS, pace_s=0.03), *settings, f"{machines}=[{alpha},{beta}]")
        directory = RunDirectory(Path("runs") / "it")
        until(lambda: last_step(directory) >= 25 or run.status is not None, there.said.read_text, 60)
        assert run.status is None, there.said.read_text()
        there.lab.cut(2)
        assert run.wait(BUSY * 30) == 4, there.said.read_text()
        named = r"^rank 1 \(host h2, process \d+\) has been silent for .*; last step \d+"
        assert re.search(named, there.said.read_text(), re.MULTILINE), there.said.read_text()
        there.assert_trains_nowhere()
        again = there.volary("resume", "it", f"{machines}=[{alpha}:2]", "strategy.give_up_after_s=60")
        assert again.wait(BUSY * 60) == 0, there.said.read_text()
        assert (state(directory), last_step(directory)) == ("finished", STEPS)


@ON_MACHINES
def test_run_that_recovers_trains_on_from_memory_without_a_machine_that_is_cut_off(engine, kind, short):
    with apart(engine, kind, short) as there:
        settings, machines = asked(engine)
        more = [f"{machines}=[{','.join(there.names)}]", "strategy.recover=memory"]
        run = there.volary("train", session(steps=STEPS, pace_s=0.03), *settings, *more)
        directory = RunDirectory(Path("runs") / "it")
        until(lambda: last_step(directory) >= 25 or run.status is not None, there.said.read_text, 60)
        assert run.status is None, there.said.read_text()
        there.lab.cut(2)
        assert run.wait(BUSY * 60) == 0, there.said.read_text()
        assert_trained_on_without(1, directory, STEPS)
        there.assert_trains_nowhere()


@pytest.mark.parametrize("engine", ["hosts", "torchrun"])
def test_machine_that_has_no_address_but_the_loopback_of_ipv6_runs_all_over_it(engine):
    if reason := why_not() or _sshd.why_not() or ("sshd needs root" if os.geteuid() else ""):
        pytest.skip(reason)
    said = Path("said")
    with Lab(hosts=2) as lab, said.open("wb") as out:
        lab.output(0, ["ip", "-4", "address", "flush", "dev", "lo"])
        lab.output(0, ["ip", "address", "flush", "dev", "eth0"])
        lab.output(0, ["sh", "-c", "ip -6 address show dev lo | grep -q ::1 || ip address add ::1/128 dev lo"])
        lab.start(0, _sshd.configured(Path.cwd(), PORT, "::1", {"here": "::1"}), output=out)
        lab.output(0, [str(shutil.which("ssh")), "-F", "ssh_config", "-o", "ConnectionAttempts=20", "here", "true"])
        settings, machines = asked(engine)
        variables = {"PYTHONPATH": str(SOURCE), "PATH": plain_ssh()}
        more = [f"{machines}=[here:2]", "strategy.interface=lo"]
        run = lab.start(0, [*VOLARY, "train", session(steps=30), *settings, *more], variables, out)
        assert run.wait(BUSY * 60) == 0, said.read_text()
        directory = RunDirectory(Path("runs") / "it")
        assert (state(directory), last_step(directory)) == ("finished", 30)
