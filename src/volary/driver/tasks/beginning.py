"""Lets a run whose network begins from weights have them as its first checkpoint, in a process that imports torch."""

from __future__ import annotations

import subprocess
import sys

from volary.driver.tasks.task import Task
from volary.errors import BadInput, RunError
from volary.run.checkpoints import Checkpoints
from volary.run.directory import RunDirectory
from volary.session.script import Script

WRITE = [sys.executable, "-m", "volary.train.beginning.write"]


def begin(directory: RunDirectory, task: Task) -> None:
    """Write the first checkpoint of a run that begins from weights, unless it has one: it never reads them again.

    Raises BadInput if they do not fit.
    """
    if isinstance(task, Script) or task.weights is None or Checkpoints(directory.checkpoints).steps():
        return
    task.weights.check()
    done = subprocess.run([*WRITE, str(directory.path)], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, check=False)
    if problem := done.stdout.decode():
        raise BadInput(problem)
    if done.returncode:
        raise RunError(f"{directory.path}: reading the weights that it begins with ended with code {done.returncode}")
