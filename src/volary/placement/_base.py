"""Where a worker stands, whoever started it."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Protocol

from volary.errors import BadInput


@dataclass(frozen=True, kw_only=True)
class Place:
    """Who am I, and where do we meet?

    launcher: what started this process. life: how often it was restarted before. node: this machine's number.
    meet: host:port of the meeting point that the launcher names, if it names one.
    """

    launcher: str
    rank: int
    world_size: int
    local_rank: int
    node: int
    life: int
    meet: str | None


class Placement(Protocol):
    """Recognises one launcher by the environment that it gives to its processes."""

    def find(self, environment: os._Environ[str] | dict[str, str]) -> Place | None:
        """The place that this launcher gave, or None if it did not start this process.

        Raises BadInput if its variables are there in part, or make no sense.
        """
        ...


def whole(environment: os._Environ[str] | dict[str, str], name: str, launcher: str) -> int:
    """The whole number in variable `name`. Raises BadInput naming it."""
    value = environment.get(name)
    if value is None or not value.isdigit():
        shown = "missing" if value is None else f"{value!r}"
        raise BadInput(f"{launcher} started this process, but its variable {name} is {shown}; a whole number is needed")
    return int(value)
