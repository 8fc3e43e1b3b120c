"""The result of a run, and the protocol of those who watch it until then."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, Protocol

from volary.run.directory import RunDirectory


@dataclass(frozen=True)
class Ending:
    """A run that ended as it should. finished: all its steps or an early stop; stopped: by the user, to be resumed."""

    directory: RunDirectory
    state: Literal["finished", "stopped"]
    step: int
    message: str = ""


class Watcher(Protocol):
    """Shows a run to somebody. It reads the run directory; the driver only tells it when."""

    def started(self, directory: RunDirectory) -> None:
        """The run directory is there and the workers are being started."""
        ...

    def look(self) -> None:
        """Called about four times a second while the run goes on."""
        ...

    def ended(self, state: str | None = None, step: int | None = None) -> None:
        """The run is over; called once, however it ended. state, step: if known; a full disk may not hold them."""
        ...


class Unwatched:
    """A `Watcher` that shows nothing, for runs that nobody follows."""

    def started(self, directory: RunDirectory) -> None:
        pass

    def look(self) -> None:
        pass

    def ended(self, state: str | None = None, step: int | None = None) -> None:
        pass
