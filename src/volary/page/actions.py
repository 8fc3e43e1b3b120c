"""Actions of the page, each a POST. A run's driver finds the request in the run's folder, and notes it as an event."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, TypeVar

import msgspec

from volary.errors import BadInput
from volary.jobs.queue import LocalQueue
from volary.monitor.watching import ask_to_leave
from volary.page import commands
from volary.run.control.requests import ChangeRate, LeaveRun, WriteCheckpoint, ask
from volary.run.directory import RunDirectory
from volary.run.removing import remove
from volary.run.tags import Tags, write_tags
from volary.session.changing import RATE, rate_while_running

LARGEST_BYTES = 64 * 1024
_Wanted = TypeVar("_Wanted")


class TypedRate(msgspec.Struct, forbid_unknown_fields=True):
    """The page's request to change the learning rate. lr: the text that was typed."""

    lr: str


def _change_rate(directory: RunDirectory, body: bytes) -> None:
    typed = parsed(body, TypedRate, "the learning rate").lr
    ask(directory, ChangeRate(rate_while_running(directory.session, [f"{RATE}={typed}"])))


def _leave(directory: RunDirectory, body: bytes) -> None:
    """Return once the driver has answered. Raises RunError with its words if the worker cannot leave."""
    ask_to_leave(directory, parsed(body, LeaveRun, "leave"), ("asked", "left", "lost"))


def parsed(body: bytes, kind: type[_Wanted], what: str) -> _Wanted:
    """The body of a POST, judged. Raises BadInput."""
    try:
        return msgspec.json.decode(body, type=kind)
    except msgspec.MsgspecError as error:
        raise BadInput(f"{what}: {error}") from None


class Start(msgspec.Struct, forbid_unknown_fields=True):
    """overrides: `a.b.c=value`, as on the command line. workers: how many are to join. queue: whether it is queued."""

    overrides: list[str] = msgspec.field(default_factory=list)
    workers: Annotated[int, msgspec.Meta(ge=1, le=64)] = 1
    queue: bool = False


class Priority(msgspec.Struct, forbid_unknown_fields=True):
    """A run's new priority in the queue."""

    value: Annotated[int, msgspec.Meta(ge=-(2**31), le=2**31)]


class Move(msgspec.Struct, forbid_unknown_fields=True):
    """By how many places a run of the queue moves: up if negative."""

    by: Annotated[int, msgspec.Meta(ge=-(2**31), le=2**31)]


ACTIONS: dict[str, Callable[[RunDirectory, bytes], Any]] = {
    "stop": lambda directory, _: LocalQueue().stop(directory),
    "save": lambda directory, _: ask(directory, WriteCheckpoint()),
    "rate": _change_rate,
    "leave": _leave,
    "tags": lambda directory, body: write_tags(directory, parsed(body, Tags, "tags and note")),
    "remove": lambda directory, _: remove(directory),
}
"""By name: end the run after its step, write a checkpoint, change the learning rate, let a worker leave or
expel it, replace tags and note, remove it.

Each raises BadInput, or RunError, if it may not.
"""

STARTS: dict[str, Callable[[RunDirectory, bytes], Any]] = {
    "resume": lambda directory, body: commands.resume(directory, parsed(body, Start, "resume").overrides),
    "join": lambda directory, body: commands.join(directory, parsed(body, Start, "join").workers),
    "hold": lambda directory, _: LocalQueue().hold(str(directory.path)),
    "release": lambda directory, _: LocalQueue().release(str(directory.path)),
    "cancel": lambda directory, _: LocalQueue().cancel(str(directory.path)),
    "move": lambda directory, body: LocalQueue().move_by(str(directory.path), parsed(body, Move, "move").by),
    "priority": lambda directory, body: LocalQueue().set_priority(
        str(directory.path), parsed(body, Priority, "priority").value
    ),
}
"""Actions that start processes: resume the run, with other settings too; add workers to it; and those that change its
place in the queue, whose runner starts others then.
"""
