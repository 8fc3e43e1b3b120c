"""A run of a benchmark's own job, driven as `volary train` drives one: hub, journal, heartbeats, cores."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from volary.driver.ending import NoWatcher
from volary.driver.start import drive_of
from volary.driver.tasks.task import create
from volary.engine._base import Handle, Launch
from volary.run.launch.meeting import Meeting
from volary.session.spec import Session

FOUND = "turns.json"  # below the run's results: what the first worker has measured


def driven(session: Session, job: str, words: Sequence[str]) -> Any:
    """Return what the first worker writes into FOUND. job: of this folder, "module:function". words: its arguments."""
    path = os.environ.get("PYTHONPATH", "").split(os.pathsep)  # workers import their job from this folder
    os.environ["PYTHONPATH"] = os.pathsep.join(dict.fromkeys(filter(None, [str(Path(__file__).parent), *path])))
    directory, engine = create(session), session.engine
    command = [sys.executable, "-m", "volary.worker", *words]

    def launch(meeting: Meeting) -> Handle:
        count = session.strategy.workers
        wish = Launch(role="worker", directory=directory, command=command, count=count, meeting=meeting, job=job)
        handle: Handle = engine.launch(wish)
        return handle

    with directory.lock() as lock:
        drive_of(directory, lock, session, NoWatcher(), engine.host(), engine).run(launch)
    return json.loads((directory.results / FOUND).read_text(encoding="utf-8"))
