"""The processes that keep a run's parameters, as the driver sees them: none, or servers (roster_and_servers.py)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Protocol

from volary.comm.control.service import Replies, Service

if TYPE_CHECKING:
    from volary.run.control.requests import Request
    from volary.run.launch.meeting import Meeting


@dataclass(frozen=True)
class ServerFailure:
    """The failure of a server that ends the run. lines: for the user, the cause first. log: the server's own."""

    lines: list[str]
    log: Path


class ServerGroup(Protocol):
    """Starts with the run, is looked at while it continues, ends with it.

    elastic: the run continues without a worker that is lost. lock_step: its workers keep step without servers, so that
    they say how the run ends, and others join where they pause. each: workers of neighbouring ranks that hold a replica
    together, and are lost together in a run that continues. services: what the run's server carries for them.
    """

    elastic: bool
    lock_step: bool
    each: int

    @property
    def services(self) -> Mapping[str, Service]:
        """The services that the driver's keyed server must have for these servers, by name."""
        ...

    def start(self, meeting: Meeting) -> None:
        """The run's server listens; the workers are started next."""
        ...

    def expect(self, rank: int) -> None:
        """A worker is let into the run, and starts. In the thread of the run's server."""
        ...

    def without(self, rank: int, reason: str, now: float) -> Replies:
        """Give up a worker, and let the run continue. In the thread of the run's server."""
        ...

    def left(self, rank: int, now: float) -> Replies:
        """A worker has left by itself, perhaps before it had begun. In that thread."""
        ...

    def finish(self, now: float) -> Replies | None:
        """Bring the run to an end after the current work; None: the workers are asked themselves. In that thread."""
        ...

    def ask(self, request: Request, now: float) -> Replies | None:
        """Do what the run is asked to do; None: the workers are asked themselves. In that thread."""
        ...

    def look(self) -> None:
        """Look at the servers; called about ten times a second."""
        ...

    @property
    def failure(self) -> str:
        """Why the run cannot go on; empty while it can."""
        ...

    @property
    def refusal(self) -> str:
        """The words of a server that refused to begin for a reason that the user can mend; empty if none did."""
        ...

    @property
    def outcome(self) -> Literal["finished", "stopped", "thawed"] | None:
        """How the run has ended, where it is theirs to say; None: it has not, or the workers say it."""
        ...

    @property
    def corrupt(self) -> str:
        """Why the run's data cannot be gone on with, where they count what could not be read; empty if it can."""
        ...

    @property
    def unsaved(self) -> str:
        """Why the last checkpoint of a run that has ended is not there, where they write it; empty if it is."""
        ...

    def account(self) -> ServerFailure | None:
        """The failure of a server without which the run cannot continue; None if there is none."""
        ...

    @property
    def ending(self) -> bool:
        """Whether some of them still have something to write, or have not left."""
        ...

    def steps(self, reported: int) -> int:
        """Updates done. reported: as the workers say that have left a verdict."""
        ...

    def begun(self, reported: int) -> bool:
        """Whether any was done in this attempt of the run."""
        ...

    def stop(self) -> None:
        """End all server processes of the run."""
        ...


class NoServers:
    """The group of no servers: each worker keeps the parameters itself, of which those that are left may train on."""

    elastic = False
    lock_step = True
    each = 1
    ending = False
    failure = refusal = corrupt = unsaved = ""
    outcome = None
    services: Mapping[str, Service] = {}

    def __init__(self, *, recovers: bool = False) -> None:
        self.elastic = recovers

    def start(self, meeting: Meeting) -> None:
        pass

    def expect(self, rank: int) -> None:
        """Do nothing: it waits until those that train pause."""

    def without(self, rank: int, reason: str, now: float) -> Replies:
        """Do nothing: workers keep what is needed themselves."""
        return ()

    def left(self, rank: int, now: float) -> Replies:
        """Reply nothing: the worker's goodbye has said all."""
        return ()

    def finish(self, now: float) -> Replies | None:
        """None: the workers agree on the end."""
        return None

    def ask(self, request: Request, now: float) -> Replies | None:
        """None: the workers agree on the step."""
        return None

    def look(self) -> None:
        """Do nothing: there is no server."""

    def account(self) -> ServerFailure | None:
        """None: there is no server."""
        return None

    def steps(self, reported: int) -> int:
        """The steps that the workers report."""
        return reported

    def begun(self, reported: int) -> bool:
        """Whether the workers have counted a step: they count from where they resumed, once they have."""
        return reported > 0

    def stop(self) -> None:
        pass
