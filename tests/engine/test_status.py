"""Exit status of the command of a launcher that starts Volary: a job script reads nothing else."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import psutil
import pytest

from engine._engines import mpirun
from faults._running import VOLARY, Run, last_step, life_of, running, session, state
from volary.run.database.reader import RunReader

TORCHRUN = [sys.executable, "-m", "torch.distributed.run", "--nnodes=1", "--nproc-per-node=2", "--monitor-interval=0.1"]
ROOT = ["--allow-run-as-root"] if os.geteuid() == 0 else []
LAUNCHERS = {
    "torchrun": [*TORCHRUN, "-m"],
    "openmpi": [mpirun("openmpi"), *ROOT, "--oversubscribe", "-n", "2", sys.executable, "-m"],
    "mpich": [mpirun("mpich"), "-n", "2", sys.executable, "-m"],
    "slurm": ["srun", "-n", "2", sys.executable, "-m"],
}
ITS_OWN = 1  # torchrun's, whatever a worker ended with
LOOP = """
import time
import torch
import volary

worker = volary.init()
model = torch.nn.Linear(4, 2)
model, optimizer = worker.distribute(model, torch.optim.SGD(model.parameters(), lr=0.1))
data = torch.utils.data.TensorDataset(torch.randn(30, 4), torch.randint(2, (30,)))
while True:
    for inputs, labels in worker.feed(data, batch_size=8):
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(inputs), labels).backward()
        optimizer.step()
        time.sleep(0.02)
"""
Start = Callable[..., Run]

pytestmark = pytest.mark.slow  # launchers, whose processes import torch


@pytest.fixture(params=LAUNCHERS)
def launcher(request: pytest.FixtureRequest) -> str:
    name = str(request.param)
    if name == "slurm":
        request.getfixturevalue("allocation")
    elif not Path(program := LAUNCHERS[name][0]).exists():
        pytest.skip(f"{program} is not there: make engines")
    return name


@pytest.fixture
def start() -> Iterator[Start]:
    """`start(command, **session)`: workers of a session that a launcher has started, ended with the test."""
    started: list[Run] = []

    def begin(command: Sequence[str], **how: object) -> Run:
        file = session(**how)  # type: ignore[arg-type]
        started.append(Run([*command, "volary.worker", file]))
        return started[-1]

    yield begin
    for run in started:
        run.end()


def expected(launcher: str, code: int) -> int:
    return ITS_OWN if launcher == "torchrun" and code else code


def driver(run: Run) -> psutil.Process:
    with RunReader(run.directory) as reader:
        return psutil.Process(json.loads(reader.info()["pids"])[0])


def stop(run: Run) -> None:
    subprocess.run([*VOLARY, "stop", "it"], check=True, capture_output=True, timeout=300)


def test_run_that_is_trained_to_its_end_is_0(launcher, start):
    run = start(LAUNCHERS[launcher], steps=5)
    assert run.ended().status == 0, run.text()
    assert state(run.directory) == "finished"


def test_run_whose_driver_is_lost_is_4(launcher, start):
    run = start(LAUNCHERS[launcher], pace_s=0.02)
    run.wait_for_step(10)
    driver(run).kill()
    assert run.ended().status == expected(launcher, 4), run.text()
    assert "volary resume it" in run.text()


def test_run_that_its_user_has_stopped_is_130(launcher, start):
    run = start(LAUNCHERS[launcher], pace_s=0.02)
    run.wait_for_step(10)
    stop(run)
    assert run.ended().status == expected(launcher, 130), run.text()
    assert state(run.directory) == "stopped"


def test_run_in_which_a_worker_raises_is_3_of_that_worker_or_4_of_one_that_lost_it(launcher, start):
    run = start(LAUNCHERS[launcher], fault="raise own")
    mixed = {3 | 4} if launcher == "mpich" else set()
    assert run.ended().status in {expected(launcher, 3), expected(launcher, 4)} | mixed, run.text()


def test_program_of_ones_own_whose_driver_is_lost_is_4():
    Path("loop.py").write_text(LOOP)
    with running(*TORCHRUN, "loop.py", name="loop-1") as run:
        run.wait_for_step(10)
        driver(run).kill()
        assert run.ended().status == ITS_OWN, run.text()
        assert re.search(r"exitcode +: 4 ", run.text()), run.text()


def test_torchrun_restarts_a_run_whose_driver_is_lost(start):
    run = start([*TORCHRUN, "--max-restarts=1", "-m"], steps=60, pace_s=0.02)
    run.wait_for_step(10)
    driver(run).kill()
    assert run.ended(at_most_s=90).status == 0, run.text()
    assert (life_of(run.directory), state(run.directory), last_step(run.directory)) == (1, "finished", 60)


def test_torchrun_s_restarts_do_not_go_on_with_a_run_that_its_user_has_stopped(start):
    run = start([*TORCHRUN, "--max-restarts=1", "-m"], pace_s=0.02)
    run.wait_for_step(10)
    stop(run)
    assert run.ended(at_most_s=90).status == ITS_OWN, run.text()
    assert (life_of(run.directory), state(run.directory)) == (0, "stopped")
    assert "was stopped by its user: no restart goes on with it" in run.text()
