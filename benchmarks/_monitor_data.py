"""Runs of any size for benchmarks/monitor.py, and the same numbers as TensorBoard's event files."""

from __future__ import annotations

import shutil
import sqlite3
import subprocess
import time
from contextlib import closing
from pathlib import Path

from volary.run.database.journal import Journal
from volary.run.directory import RunDirectory
from volary.session import Session

WORKERS = 4

# the loss falls, and varies from step to step, so that no column is like the next
_STEPS = f"""
WITH RECURSIVE n(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i + 1 < :points)
INSERT INTO steps SELECT i / {WORKERS} + 1, i % {WORKERS}, 1e9 + i * 0.01, i / 1000.0, 16,
    2.0 / (1 + i / 1000) + (i / {WORKERS} * 7919 % 1000) / 1000.0, 0.05, 0.1,
    0.003, 0.03, 0.045, 0.012, 0.006, 1000, 1000 FROM n"""

# one tag, one value a step, written by TensorBoard's own writer; loss as above
_EVENTS = """
import sys
from tensorboard.compat.proto.event_pb2 import Event
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.summary.writer.event_file_writer import EventFileWriter
folder, steps = sys.argv[1], int(sys.argv[2])
writer = EventFileWriter(folder, max_queue_size=1000, flush_secs=60)
for step in range(1, steps + 1):
    loss = 2.0 / (1 + (step - 1) * 4 // 1000) + ((step - 1) * 7919 % 1000) / 1000.0
    value = Summary.Value(tag="loss", simple_value=loss)
    writer.add_event(Event(wall_time=1e9 + step, step=step, summary=Summary(value=[value])))
writer.close()
"""


def large_run(folder: Path, points: int) -> RunDirectory:
    """A finished run of so many points: steps of WORKERS workers."""
    session = Session(network="lenet", data={"source": "digits"}, strategy={"workers": WORKERS})
    directory = RunDirectory.create(folder, "large", "", session.to_yaml())
    journal = Journal(directory.database)
    journal.start_attempt(0)
    journal.event("started")
    journal.close()
    with closing(sqlite3.connect(directory.database)) as database:
        database.executescript("PRAGMA synchronous = OFF; PRAGMA recursive_triggers = ON;")
        database.execute(_STEPS, {"points": points})
        database.commit()
    _finish(directory, points // WORKERS)
    return directory


def many_runs(folder: Path, count: int) -> None:
    """Make so many finished runs of 100 steps."""
    first = large_run(folder, 100 * WORKERS)
    for number in range(1, count):
        shutil.copytree(first.path, folder / f"run-{number}")


def _finish(directory: RunDirectory, steps: int) -> None:
    journal = Journal(directory.database)
    journal.attempt = 0
    now = time.time()
    journal.note(
        state="finished", workers=WORKERS, started_at=now - 60, ended_at=now, steps_done=steps, steps_planned=steps
    )
    journal.note(metric="accuracy", best=0.9, best_step=steps)
    journal.metrics(steps, {"accuracy": 0.9, "loss": 0.1})
    journal.event("finished")
    journal.close()


def event_files(python: str, folder: Path, steps: int) -> None:
    """The same loss, a value a step, for TensorBoard. python: of an environment that has it."""
    subprocess.run([python, "-c", _EVENTS, str(folder), str(steps)], check=True)
