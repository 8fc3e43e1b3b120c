"""A user's settings of the queue, for all machines: `queue.yaml` in the user's folder of settings."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from volary.engine.hosts import HostsEngine, machine_and_slots
from volary.errors import SettingError
from volary.run.launch.queued import QUEUED_RUN
from volary.session.reading.read import read


@dataclass(frozen=True, kw_only=True)
class QueueSettings:
    """Settings of the queue of a user's machines."""

    all_runs: bool = False  # `volary train`, `volary resume` and the page put runs into the queue, too
    hosts: tuple[str, ...] = ()  # machines on which it starts runs by ssh, too, with all their cores or so many: beta:2
    ssh: str = "ssh"  # the client, with options of it if need be: ssh -F my_config
    python: str = ""  # the Python there that has Volary; empty: at the path of this one
    share_folder: Path | None = None  # by which users of this machine share it fairly: all name the same

    def __post_init__(self) -> None:
        names = [machine_and_slots(host)[0] for host in self.hosts]
        if twice := [name for name in names if names.count(name) > 1]:
            raise SettingError(f"hosts has {twice[0]!r} twice; accepted: each machine once")

    def engine(self, *hosts: str, **more: Any) -> HostsEngine:
        """The engine that reaches these machines, with more of its settings."""
        return HostsEngine(hosts=hosts, ssh=self.ssh, python=self.python, **more)


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
