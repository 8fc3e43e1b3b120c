"""A cluster of Slurm's on this machine: real munge, slurmctld and two slurmd, all their files in one folder."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest

from engine import _sshd
from engine._engines import RAY, SPARK
from engine._slurmd import Cluster, started


@pytest.fixture(scope="module", autouse=True)
def _cluster(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Up before the first test of a file that needs it, and down after the last: no test leaves it behind."""
    here = [item for item in request.session.items if item.path == request.path]
    if not any("slurm" in item.name or "slurm" in getattr(item, "fixturenames", ()) for item in here):
        yield Cluster(why_not="no test needs it")
        return
    with contextlib.ExitStack() as down:
        yield started(tmp_path_factory.mktemp("slurm"), down)


@pytest.fixture
def slurm(_cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The cluster is the one that `srun` speaks to; after the test it has no jobs."""
    if _cluster.why_not:
        pytest.skip(_cluster.why_not)
    monkeypatch.setenv("SLURM_CONF", str(_cluster.conf))
    yield
    subprocess.run(["scancel", "--me", "--quiet"], check=True, timeout=30)


@pytest.fixture
def allocation(slurm: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """An allocation for two tasks, which this process is in."""
    command = ["salloc", "--no-shell", "--ntasks=2"]
    said = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stderr
    (job,) = re.findall(r"Granted job allocation (\d+)", said)
    monkeypatch.setenv("SLURM_JOB_ID", job)


@pytest.fixture(scope="module", autouse=True)
def _ssh_server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path | None]:
    """The configuration of its client; up as long as Slurm's cluster is."""
    if _sshd.why_not() or not any("hosts" in item.name and item.path == request.path for item in request.session.items):
        yield None
        return
    with _sshd.sshd(tmp_path_factory.mktemp("sshd")) as config:
        yield config


@pytest.fixture
def hosts(_ssh_server: Path | None) -> None:
    """`ssh -F ssh_config` reaches this machine as alpha and as beta."""
    if _ssh_server is None:
        pytest.skip(_sshd.why_not())
    shutil.copy(_ssh_server, "ssh_config")


def plain_ssh() -> str:
    """A PATH in which `ssh` is one with the configuration in this folder."""
    program = Path("bin", "ssh").absolute()
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nexec {shutil.which("ssh")} -F {Path("ssh_config").absolute()} "$@"\n')
    program.chmod(0o755)
    return f"{program.parent}:{os.environ['PATH']}"


@pytest.fixture
def ssh(hosts: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same without a word about its configuration."""
    monkeypatch.setenv("PATH", plain_ssh())


def importable(module: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A package of `make engines` can be imported, by this process and by those that it starts."""
    if find_spec(module) is None and not folder.is_dir():
        pytest.skip(f"{module} is not installed: make engines")
    monkeypatch.setattr(sys, "path", [*sys.path, str(folder)])
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, [os.environ.get("PYTHONPATH"), str(folder)])))


@pytest.fixture
def ray(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ray can be imported."""
    importable("ray", RAY, monkeypatch)


@pytest.fixture
def spark(monkeypatch: pytest.MonkeyPatch) -> None:
    """PySpark can be imported, and there is a Java for it."""
    importable("pyspark", SPARK, monkeypatch)
    if not (os.environ.get("JAVA_HOME") or shutil.which("java")):
        pytest.skip("there is no Java: apt-get install openjdk-17-jre-headless")


@pytest.fixture
def short() -> Iterator[str]:
    """A folder with a short name, as sockets are in it."""
    with tempfile.TemporaryDirectory(prefix="ray-", dir="/tmp", ignore_cleanup_errors=True) as folder:
        yield folder
