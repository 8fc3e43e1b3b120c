"""Runs of `volary train`, started as a user starts them: what their steps took, and processor seconds of all of it."""

from __future__ import annotations

import resource
import subprocess
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

from volary import Session
from volary.run.database.reader import RunReader
from volary.run.directory import RunDirectory

RUN = "it"


def trained(session: Session, warm_up: int) -> tuple[list[float], float]:
    """Seconds of each step after `warm_up`, the slowest worker's, and processor seconds of all processes of the run.

    These are counted once a process has ended: all of them end with the command. Raises CalledProcessError for a run
    that fails.
    """
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "session.yaml")
        own = replace(session, run=replace(session.run, folder=folder, name=RUN))
        file.write_text(own.to_yaml(), encoding="utf-8")
        command = [sys.executable, "-m", "volary", "train", str(file), "--quiet"]
        subprocess.run(command, cwd=folder, check=True, capture_output=True, text=True)
        with RunReader(RunDirectory(Path(folder, RUN))) as reader:
            rows = list(reader.steps(after=warm_up))
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    slowest = [max(row.step_s for row in rows if row.step == step) for step in sorted({row.step for row in rows})]
    return slowest, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
