"""The protocol of placements: a worker's rank, world size and host, whoever started it."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Protocol

from volary.errors import BadInput
from volary.sharding.groups import leads


@dataclass(frozen=True, kw_only=True)
class Place:
    """The place of this process among those of its run, and where they meet.

    launcher: what started this process. attempt: how often it was restarted before. node: this machine's number.
    beside: how many processes of the launch share this machine, itself included; None: it is not known.
    meet: the meeting point that the launcher names: host:port, or the path of a file that all ranks have; empty: it
    names none, and they find the run by its launch. address: this machine's address, which the run's sockets listen on.
    launch: what all processes of one launch have in common. restarts: whether the launcher may start them again, in the
    same launch. writes_log: whether the worker has to write its own log into the run directory, as nobody else does.
    hosts: where each rank is, if the launcher says so. own_devices: the launcher shows each process GPUs of its own
    alone. Raises BadInput if they make no sense.
    """

    launcher: str
    rank: int
    world_size: int
    local_rank: int
    node: int
    attempt: int
    meet: str = ""
    address: str = "127.0.0.1"
    launch: str = ""
    restarts: bool = False
    writes_log: bool = False
    beside: int | None = None
    hosts: tuple[str, ...] = ()
    own_devices: bool = False

    @property
    def leads(self) -> bool:
        """Whether this worker acts for all of the run: it hosts, writes, and says what is to be said once."""
        return leads(self.rank)

    def __post_init__(self) -> None:
        if self.rank >= self.world_size:
            raise BadInput(
                f"{self.launcher} gave this process rank {self.rank} of {self.world_size}; accepted: 0 to "
                f"{self.world_size - 1}"
            )
        if self.meet and not re.fullmatch(r".+:[0-9]+|/.+", self.meet):
            raise BadInput(f"{self.launcher} says that workers meet at {self.meet!r}; accepted: host:port")

    @property
    def meet_file(self) -> Path | None:
        """The file that is the meeting point, if it is one."""
        return Path(self.meet) if self.meet.startswith("/") else None

    @property
    def meet_at(self) -> tuple[str, int]:
        """Host and port of the meeting point."""
        host, _, port = self.meet.rpartition(":")
        return host, int(port)


class Placement(Protocol):
    """Recognises one launcher by the environment that it gives to its processes.

    allocates: other launchers may run inside of it; the place is theirs then.
    """

    allocates: ClassVar[bool]

    def find(self, environment: os._Environ[str] | dict[str, str]) -> Place | None:
        """The place that this launcher gave, or None if it did not start this process.

        Raises BadInput if its variables are there in part, or make no sense.
        """
        ...


def text(environment: os._Environ[str] | dict[str, str], name: str, launcher: str) -> str:
    """The value of variable `name`. Raises BadInput if the launcher did not set it."""
    value = environment.get(name)
    if value is None:
        raise BadInput(f"{launcher} started this process, but its variable {name} is missing")
    return value


def whole(environment: os._Environ[str] | dict[str, str], name: str, launcher: str) -> int:
    """The whole number in variable `name`. Raises BadInput naming it."""
    value = text(environment, name, launcher)
    if not value.isdecimal():
        raise BadInput(f"{launcher} started this process, but its {name} is {value!r}; accepted: a whole number")
    return int(value)
