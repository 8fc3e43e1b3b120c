"""The result of a run, and nobody who watches it until then."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from volary.run.directory import RunDirectory


@dataclass(frozen=True)
class Ending:
    """A run that ended as it should. finished: all its steps or an early stop; stopped: by the user, to be resumed.

    thawed: to be resumed at once, with more of its network that is trained.
    """

    directory: RunDirectory
    state: Literal["finished", "stopped", "thawed"]
    step: int
    message: str = ""


class NoWatcher:
    """A `Watcher` that shows nothing, for runs that nobody follows."""

    def started(self, directory: RunDirectory) -> None:
        pass

    def look(self) -> None:
        pass

    def ended(self, state: str | None = None, step: int | None = None) -> None:
        pass
