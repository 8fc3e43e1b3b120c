"""The protocol of those who watch a run while it trains."""

from __future__ import annotations

from typing import Protocol

from volary.run.directory import RunDirectory


class Watcher(Protocol):
    """Shows a run to somebody. It reads the run directory; the driver only tells it when."""

    def started(self, directory: RunDirectory) -> None:
        """The run directory is there and the workers are being started."""
        ...

    def look(self) -> None:
        """Called about four times a second during the run."""
        ...

    def ended(self, state: str | None = None, step: int | None = None) -> None:
        """The run is over; called once, however it ended. state, step: if known; a full disk may not hold them."""
        ...
