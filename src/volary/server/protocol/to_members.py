"""Messages of the run's roster to workers and servers: small and plain, over the keyed server."""

from __future__ import annotations

from typing import Final, TypeAlias

from msgspec import Struct

from volary.server.protocol.updates import Closing, Portion
from volary.server.protocol.vectors import Combine


class _Message(Struct, frozen=True, forbid_unknown_fields=True, tag_field="kind", tag=str.lower):
    pass


# The roster to a worker


class Welcome(_Message, frozen=True):
    """rank: its place. facts: of the first worker, to be compared with one's own. restore: see ServerWelcome."""

    rank: int
    facts: dict[str, str]
    restore: int | None = None


class View(_Message, frozen=True):
    """Says who serves. Sent whenever that changes; number grows.

    shards: for each the servers that keep it, the first of which is asked. addresses: of the servers that are there.
    """

    number: int
    shards: list[list[int]]
    addresses: dict[int, tuple[str, int]]


class Learn(_Message, frozen=True):
    """Learn from `portions`, which are pushed as one, the contribution `clock`. samples: that the run learns from
    before it; where workers do not keep step, those of the updates so far.

    portions: none if it learns Again. oldest: the least update that the parameters must hold that it is computed with.
    settled: the worker's newest
    contribution that is in an update, or in none for ever.
    """

    clock: int
    portions: list[Portion]
    samples: int
    oldest: int
    settled: int = -1


class EvaluatePiece(_Message, frozen=True, tag="evaluate"):
    """Evaluate the state `snapshot`, of the step `step`, on the validation samples `start` to `end`; maybe on none.

    writes: the network writes a text with it, too, if the session says which.
    """

    snapshot: int
    piece: int
    start: int
    end: int
    step: int = 0
    writes: bool = False


class Figure(_Message, frozen=True):
    """Say what these totals of an evaluation mean (Figures)."""

    snapshot: int
    totals: list[float]
    samples: int


class Dropped(_Message, frozen=True):
    """The contribution `clock` is in no update; its samples come again."""

    clock: int


class Clipped(_Message, frozen=True):
    """The norm of the gradient of the update that the contribution `clock` is in, before it is clipped by that."""

    clock: int
    norm: float


class Rate(_Message, frozen=True):
    """The learning rate before any schedule is `lr`, for updates that bring the run beyond so many samples.

    lr: None: what the session says. factor: of the rate, by evaluations. To workers and to servers, before the first
    such update.
    """

    samples: int
    lr: float | None
    factor: float = 1.0


class SaveEnded(_Message, frozen=True):
    """Says that what AskSave asked for has ended. problem: why nothing is saved."""

    problem: str = ""


LEFT: Final = "left"  # the outcome for workers that hold a replica together, one of which was asked to leave


class End(_Message, frozen=True):
    """The run is over for this member. outcome: finished, stopped or thawed; LEFT, after what it was given; anything
    else: why it has to go.

    unsaved: why its last checkpoint is not there.
    """

    outcome: str
    unsaved: str = ""

    @property
    def is_of_run(self) -> bool:
        """Whether the run has ended so, for all members."""
        return self.outcome in ("finished", "stopped", "thawed")


# The roster to a server; it also hears View and End


class ServerWelcome(_Message, frozen=True):
    """restore: the checkpoint's step to begin from; None: as the network begins. applied: the update it stands for."""

    restore: int | None
    applied: int


class Close(_Message, frozen=True):
    """Tells servers to apply an update."""

    closing: Closing


class Clip(_Message, frozen=True):
    """An update whose norm was found is to be applied, times `factor`."""

    number: int
    factor: float


class Direct(_Message, frozen=True):
    """An update is to be applied whose products were found: these are done one after the other, slice by slice."""

    number: int
    commands: tuple[Combine, ...]


class Keep(_Message, frozen=True):
    """Keep the state as of update `number`, under the name `snapshot`, while going on.

    To a worker: its residuals as of its contribution `number`.
    """

    snapshot: int
    number: int


class Save(_Message, frozen=True):
    """Write what is kept of these shards to the draft of checkpoint `step`. To a worker: its residuals, no shards.

    first: of the workers whose loops have asked for it, this one writes what all of them have alike, too.
    """

    snapshot: int
    step: int
    shards: list[int]
    first: bool = False


class Release(_Message, frozen=True):
    """Says that nobody will ask for the snapshot any more."""

    snapshot: int


class Gone(_Message, frozen=True):
    """A worker has gone: what is remembered of it can be forgotten."""

    worker: int


class Acknowledged(_Message, frozen=True):
    """The answer to a beat: the roster is there."""


ToMember: TypeAlias = (
    Welcome
    | View
    | Learn
    | EvaluatePiece
    | Figure
    | Dropped
    | Clipped
    | Rate
    | SaveEnded
    | End
    | ServerWelcome
    | Close
    | Clip
    | Direct
    | Keep
    | Save
    | Release
    | Gone
    | Acknowledged
)
