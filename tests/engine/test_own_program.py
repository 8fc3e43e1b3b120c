"""A program of one's own that calls `volary.init()`, started by launchers themselves and by `volary launch`."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

import pytest

from engine._engines import TRIED, Tried, mpirun
from engine.test_started_by_mpirun import OPTIONS
from faults._running import VOLARY, running, state
from train._own_programs import PROGRAM
from volary.run.directory import RunDirectory

pytestmark = pytest.mark.slow  # real launchers, and processes with torch
TORCHRUN = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2"]


def models(text: str) -> dict[int, str]:
    """Lines that each of two ranks printed of its model."""
    return {int(rank): value for rank, value in re.findall(r"__main__ (\d) of 2: (-?\d+\.\d+)", text)}


@pytest.mark.parametrize("by", ["torchrun", "openmpi", "mpich", "slurm"])
def test_processes_that_a_launcher_starts_find_their_place_in_one_run(by, request):
    match by:
        case "torchrun":
            command = TORCHRUN
        case "slurm":
            request.getfixturevalue("slurm")
            command = ["srun", "--ntasks=2", "--kill-on-bad-exit=1", sys.executable]
        case _:
            if not Path(program := mpirun(by)).exists():
                pytest.skip(f"{by} is not installed: make engines")
            command = [program, *OPTIONS[by], "-n", "2", sys.executable]
    Path("mine.py").write_text(PROGRAM)
    with running(*command, "mine.py", "--epochs", "1", name="mine-1") as run:
        assert run.ended(at_most_s=90).status == 0, run.text()
        said = models(run.text())
    assert said.keys() == {0, 1}
    assert said[0] == said[1], "all ranks have the same model"
    assert [path.name for path in Path("runs").iterdir()] == ["mine-1"]
    assert state(RunDirectory(Path("runs") / "mine-1")) == "finished"


@pytest.mark.parametrize("tried", TRIED, ids=lambda one: one.name)
def test_program_is_launched_on_every_engine_with_its_arguments_and_its_exit_status(tried: Tried, request):
    if tried.needs:
        request.getfixturevalue(tried.needs)
    if (reason := tried.why_not()) is not None:
        pytest.skip(f"{tried.name}: {reason}")
    Path("mine.py").write_text(PROGRAM + "sys.exit(7)\n")
    settings = [*tried.settings, "strategy.workers=2", "run.name=it"]
    with running(*VOLARY, "launch", *settings, "mine.py", "--epochs", "1") as run:
        assert run.ended(at_most_s=90).status == 7, run.text()
    logs = os.linesep.join(run.directory.log(rank).read_text() for rank in (0, 1))
    said = models(logs)
    assert said.keys() == {0, 1}
    assert said[0] == said[1], "all ranks have the same model"
