"""The further machines of the queue as its runner knows them, for whoever looks on."""

from __future__ import annotations

from pathlib import Path

import msgspec
from msgspec.structs import replace

from volary.jobs.entry import HostCapacity
from volary.jobs.processes.wakeups import wake_runner
from volary.run.disk import Disk, open_regular, replace_file

FILE = "hosts.json"  # in the folder of the queue
DOUBTED = "a run was lost there, and it is asked again"


def known_hosts(folder: Path) -> tuple[HostCapacity, ...]:
    """The machines as they were when the runner of this queue asked them last; none before that."""
    try:
        with open_regular(folder / FILE) as file:
            return msgspec.json.decode(file.read(), type=tuple[HostCapacity, ...])
    except (OSError, ValueError, msgspec.MsgspecError):
        return ()


def keep_hosts(folder: Path, hosts: tuple[HostCapacity, ...]) -> None:
    """Keep what is known of them now. Raises OSError."""
    if hosts != known_hosts(folder):
        replace_file(Disk(), folder / FILE, msgspec.json.encode(hosts), mode=0o600)
        wake_runner(folder)


def doubt_host(folder: Path, name: str) -> None:
    """Let nothing start on a machine that may be lost, before it has answered anew. Raises OSError."""
    known = known_hosts(folder)
    keep_hosts(folder, tuple(replace(one, why_not=f"{name}: {DOUBTED}") if one.name == name else one for one in known))
