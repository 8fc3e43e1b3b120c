"""mpirun starts Volary: its processes find their run by themselves, without a store of the launcher's."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from engine._engines import mpirun
from faults._running import last_step, running, session, state
from volary.run.directory import RunDirectory

ROOT = ["--allow-run-as-root"] if os.geteuid() == 0 else []
OPTIONS = {"openmpi": [*ROOT, "--oversubscribe"], "mpich": []}


@pytest.fixture(params=OPTIONS)
def launcher(request: pytest.FixtureRequest) -> list[str]:
    if not Path(program := mpirun(request.param)).exists():
        pytest.skip(f"{request.param} is not installed: make engines")
    return [program, *OPTIONS[request.param], "-n", "2"]


def worker(launcher: Sequence[str], *arguments: str) -> list[str]:
    return [*launcher, sys.executable, "-m", "volary.worker", *arguments]


@pytest.mark.slow  # starts six processes with torch
def test_two_mpiruns_at_once_train_a_run_each(launcher):
    file = session(steps=20)
    Path(file).write_text(Path(file).read_text().replace("run: {name: it}", ""))
    name = "net-synthetic"
    with running(*worker(launcher, file), name=f"{name}-1") as one, running(*worker(launcher, file)) as other:
        assert (one.ended().status, other.ended().status) == (0, 0), one.text()
    for number in (1, 2):
        directory = RunDirectory(Path("runs") / f"{name}-{number}")
        assert (state(directory), last_step(directory)) == ("finished", 20)


@pytest.mark.slow  # starts processes with torch
def test_rank_that_does_not_see_the_folder_of_the_checkpoints_is_refused_by_its_machine(launcher):
    if subprocess.run(["unshare", "--mount", "true"], capture_output=True, check=False).returncode:
        pytest.skip("unshare --mount is not allowed here")
    file, there = session(steps=20), Path("large").absolute()
    there.mkdir()
    hidden = f'[ $((PMI_RANK + OMPI_COMM_WORLD_RANK)) = 0 ] || mount -t tmpfs none {there}; exec "$@"'
    command = [*launcher, "unshare", "--mount", "sh", "-c", hidden, "sh", *worker([], file, f"checkpoint.path={there}")]
    with running(*command) as run:
        ended = run.ended()
        assert ended.status != 0
        assert f" does not see {there}/it, where checkpoint.path has the run's checkpoints; accepted: " in run.text()
    assert state(RunDirectory(Path("runs") / "it")) == "failed"


def test_session_that_is_refused_is_refused_once_in_one_sentence(launcher):
    with running(*worker(launcher, session(), "optimizer.lr=-1")) as run:
        ended = run.ended()
        assert ended.status != 0
        assert len(re.findall(r"optimizer.*lr", ended.err)) <= 2, ended.err
