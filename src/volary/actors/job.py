"""The job of Ray's that a run is: `python -m volary.actors.job SETTINGS RUN COMMAND...` waits for the run's places.

It holds them while COMMAND, the run's driver, is there, which finds their name in its environment. A run whose machine
is taken away waits for new ones, and is resumed.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from volary.actors.cluster import ActorSettings, ask_for_places, connect, ray_module
from volary.errors import Stopped
from volary.run.directory import RunDirectory
from volary.run.launch.launched import is_terminated

JOB = "VOLARY_RAY_JOB"  # the variable with the job's name, in the job
HELD = "VOLARY_RAY_HELD"  # the one with the name of its places
ADDRESS = "RAY_ADDRESS"  # Ray's own, with the address of the cluster's head
_OF_THE_JOB = "RAY_JOB_CONFIG_JSON_ENV_VAR"  # by which what a job starts is the job, to Ray
_LOOK_S = 0.5


def main() -> int:
    """Hold places and drive the run there, again and again while it is to be resumed; the status of its driver."""
    settings, run, command = ActorSettings(**json.loads(sys.argv[1])), RunDirectory(Path(sys.argv[2])), sys.argv[3:]
    ray, asked = ray_module(), False

    def ask(*_: object) -> None:
        nonlocal asked
        asked = True

    connect(ray, settings, {})
    signal.signal(signal.SIGTERM, ask)  # Ray has set its own; a job that is stopped has it sent to all its processes
    attempt = 0
    while True:
        name = f"{os.environ[JOB]}-{attempt}"
        places = ask_for_places(ray, settings, name)
        try:
            if not _granted(places, lambda: asked):
                return Stopped.exit_code
            variables = {key: value for key, value in os.environ.items() if key != _OF_THE_JOB}
            status = subprocess.run(command, env=variables | {HELD: name}, check=False).returncode
        finally:
            ray.util.remove_placement_group(places)
        if asked or not is_terminated(run):
            return status
        attempt += 1


def _granted(places: Any, gives_up: Callable[[], bool]) -> bool:
    while not gives_up():
        if places.wait(timeout_seconds=_LOOK_S):
            return True
    return False


if __name__ == "__main__":
    status = main()
    sys.stdout.flush()
    os._exit(status)  # what Ray would do at the end of Python needs its cluster
