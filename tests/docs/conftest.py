"""A folder as a reader of the docs has it: the session that `volary init` writes, a run of it, and the commands."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from subprocess import PIPE

import pytest

from _once import once
from docs._pages import CHECKOUT
from volary.run.database.journal import Journal
from volary.run.directory import RunDirectory
from volary.session.starter import starter

PROGRAMS = {"volary": "volary", "python": "", "python3": "", "torchrun": "torch.distributed.run", "sqlite3": "sqlite3"}
RUN = "lenet-digits-1"
STEPS = 230  # as the pages say
SHORT = ["data.batch_size=8", f"train.steps={STEPS}", "evaluate.every=100 steps", "checkpoint.every=100 steps"]
AT_MOST_S = 150  # a command on a machine whose cores are all busy


@dataclass(frozen=True)
class Said:
    """How a line ended."""

    status: int
    out: str
    err: str


Shell = Callable[..., Said]


@pytest.fixture(scope="session")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """session.yaml, runs/lenet-digits-1 of 230 steps, Caffe's files of examples/, and bin/ with this Python's commands;
    one for all of pytest.
    """
    return once(tmp_path_factory, "reader", _prepare)


def commands_in(folder: Path) -> None:
    """Put this Python's commands into the folder's bin/."""
    (folder / "bin").mkdir(parents=True)
    for name, module in PROGRAMS.items():
        if name == "sqlite3" and (shutil.which(name) or sys.version_info < (3, 12)):
            continue  # Python's own stands in for it where there is one
        file = folder / "bin" / name
        file.write_text(f'#!/bin/sh\nexec "{sys.executable}" {f"-m {module}" if module else ""} "$@"\n')
        file.chmod(0o755)
    launcher = CHECKOUT / ".engines" / "mpich" / "bin" / "mpirun"  # as `make engines` installs it
    if launcher.exists():
        file = folder / "bin" / "mpirun"
        file.write_text(f'#!/bin/sh\nexec "{launcher}" "$@"\n')
        file.chmod(0o755)


def _prepare(home: Path) -> None:
    commands_in(home)
    (home / "session.yaml").write_text(starter())
    for file in (CHECKOUT / "examples").glob("*.prototxt"):
        shutil.copy(file, home)
    said = shell_in(home, "volary train session.yaml --quiet " + " ".join(f"'{setting}'" for setting in SHORT))
    assert said.status == 0, said.err
    assert [path.name for path in (home / "runs").glob("[!.]*")] == [RUN]


@pytest.fixture
def shell(home: Path, tmp_path: Path) -> Shell:
    """`shell("volary show lenet-digits-1")`: a line in bash (or another shell), in a copy of that folder."""
    shutil.copytree(home, tmp_path, dirs_exist_ok=True)

    def shell(line: str, shell: str = "bash") -> Said:
        return shell_in(tmp_path, line, shell)

    return shell


def shell_in(folder: Path, line: str, shell: str = "bash", at_most_s: float = AT_MOST_S) -> Said:
    """Run the line, with the folder as home and its bin/ first in the path; its output and exit status."""
    environment = os.environ | {
        "HOME": str(folder),
        "PATH": f"{folder / 'bin'}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": str(CHECKOUT / "src"),
        "XDG_CACHE_HOME": str(folder / "cache"),
    }
    command = [shell, "-c", line]
    with subprocess.Popen(
        command, cwd=folder, env=environment, stdout=PIPE, stderr=PIPE, text=True, start_new_session=True
    ) as process:
        try:
            out, err = process.communicate(timeout=at_most_s)
        except BaseException:
            os.killpg(process.pid, signal.SIGKILL)
            raise
    return Said(process.returncode, out, err)


def interrupt(folder: Path) -> None:
    """Make the finished run one that was stopped on its way: its last checkpoint and its end are gone."""
    directory = RunDirectory.existing(RUN, folder / "runs")
    shutil.rmtree(directory.checkpoints / f"step-{STEPS:08d}")
    journal = Journal(directory.database)
    journal.note(state="stopped", message="")
    journal.close()
