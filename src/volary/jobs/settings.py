"""A user's settings of the queue, for all machines: `queue.yaml` in the user's folder of settings."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from volary.run.launch.queued import QUEUED_RUN
from volary.session.reading.read import read


@dataclass(frozen=True, kw_only=True)
class QueueSettings:
    """Settings of the queue of a user's machines."""

    all_runs: bool = False  # `volary train`, `volary resume` and the page put runs into the queue, too


def settings_file() -> Path:
    """Where they are, if they are anywhere."""
    config = os.environ.get("XDG_CONFIG_HOME", "")
    base = Path(config) if config.startswith("/") else Path.home() / ".config"
    return base / "volary" / "queue.yaml"


def queue_settings() -> QueueSettings:
    """This user's. Raises SessionError with every problem of the file."""
    file = settings_file()
    return read(QueueSettings, file) if file.exists() else QueueSettings()


def queues_all_runs() -> bool:
    """Whether a run that begins in this process waits in the queue: not one that the queue itself has started."""
    return QUEUED_RUN not in os.environ and queue_settings().all_runs
