"""An actor or task of the user's own as a rank of a run."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from volary.actors.cluster import ray_module
from volary.actors.process import ProcessActor, place_of


def train(session: str | Path, rank: int, world_size: int, overrides: Sequence[str] = (), *, launch: str = "") -> None:
    """Be rank `rank` of a run of a session file, to its end: to be called by an actor or task of Ray's.

    All ranks are of one Ray job, and see the session's `run.folder`. overrides: as `volary train` takes them. launch:
    tells the ranks of this run from those of others in the same Ray job. Raises RuntimeError if the worker did not end
    well; what it said is in the run's directory and in Ray's log of the actor.
    """
    context = ray_module().get_runtime_context()
    variables = place_of(rank, world_size) | {"VOLARY_RAY_LAUNCH": f"{context.get_job_id()} {launch}".strip()}
    command = [sys.executable, "-m", "volary.worker", str(session), *overrides]
    status = ProcessActor().run(command, str(Path.cwd()), variables)
    if status:
        raise RuntimeError(f"rank {rank} ended with status {status}")
