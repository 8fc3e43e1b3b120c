"""A driver for scaling.py: its server with heartbeats, the board and a roster, and nothing else.

`python _scaling_driver.py WORKERS` makes a run in the current folder, prints the run's directory, host, port and
attempt as JSON, and serves until its standard input is closed. The roster expects one server process.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Mapping
from concurrent.futures import Future
from pathlib import Path
from typing import Any

from volary.comm.control.board import Board
from volary.comm.control.server import KeyedServer
from volary.comm.control.service import Reception, Service
from volary.consistency.bsp import Bsp
from volary.driver.heartbeats import HeartbeatService
from volary.driver.watching.failure_detector import FailureDetector, Rules
from volary.run.database.journal import Journal
from volary.run.directory import RunDirectory
from volary.run.machine.open_files import allow_connections
from volary.server.roster.roster import Roster
from volary.server.roster.settings import RosterSettings

PATIENT = Rules(suspect_after_s=600, give_up_after_s=600, startup_timeout_s=600)


class NothingKept:
    """Nobody saves a checkpoint here."""

    def begin(self, step: int) -> Future[None]:
        """Make room."""
        return _done()

    def give_up(self, step: int) -> None:
        """Leave nothing."""

    def commit(self, step: int, files: dict[str, str], state: dict[str, Any], metric: float | None) -> Future[None]:
        """Let it count."""
        return _done()


def _done() -> Future[None]:
    done: Future[None] = Future()
    done.set_result(None)
    return done


def main(workers: int) -> None:
    """Serve so many."""
    allow_connections(4 * workers)
    directory = RunDirectory.create(Path("runs"), "it", "it", "network: softmax\n")
    journal = Journal(directory.database)
    journal.start_attempt(0)
    settings = RosterSettings(
        workers=workers,
        servers=1,
        replicas=1,
        give_up_after_s=10.0,
        batch_size=workers,
        steps=lambda _: 10**6,
        evaluate_every=lambda _: None,
        checkpoint_every=lambda _: None,
    )
    services: Mapping[str, Service | Reception] = {
        "pulse": HeartbeatService(FailureDetector(workers, PATIENT, time.monotonic()), journal),
        "board": Board(),
        "roster": Roster(settings, Bsp(), NothingKept(), lambda *_: None),
    }
    with KeyedServer(directory.key(), services) as server:
        host, port = server.address
        print(
            json.dumps({"directory": str(directory.path), "host": host, "port": port, "attempt_id": server.attempt_id}),
            flush=True,
        )
        sys.stdin.read()


if __name__ == "__main__":
    main(int(sys.argv[1]))
