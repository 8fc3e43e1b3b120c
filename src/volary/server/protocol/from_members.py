"""Messages of workers and servers to the run's roster: small and plain, over the keyed server."""

from __future__ import annotations

from typing import TypeAlias

from msgspec import Struct

from volary.server.protocol.norms import ClipNorm
from volary.server.protocol.vectors import FoundProducts


class _Message(Struct, frozen=True, forbid_unknown_fields=True, tag_field="kind", tag=str.lower):
    pass


# A worker to the roster


class Ask(_Message, frozen=True):
    """Asks what to do next; a worker may ask ahead.

    Answered by Learn, EvaluatePiece, Figure or End, once there is something.
    """


class Computed(_Message, frozen=True):
    """Forward of the portion at `clock` is over. loss: the mean over its samples; finite: whether it is a number.

    lost: samples of it that could not be read. rates: the learning rates of this step, one of each group of the
    worker's optimiser, where a loop of one's own sets them. counted: what its gradients are a sum over, in the unit of
    all workers; None: the samples that could be read. waits: it is in no update before its Done, which may clip that.
    carries: gradients of earlier portions leave with it, so that it is in an update also without samples of its own.
    """

    clock: int
    loss: float
    finite: bool
    lost: int = 0
    rates: tuple[float, ...] = ()
    counted: float | None = None
    waits: bool = False
    carries: bool = False


class Again(_Message, frozen=True):
    """The contribution `clock` learns from the samples of the one before it once more, in a loop of one's own.

    Answered by its Learn, without portions. If some were given for that clock, they are of the one after it, and its
    Learn follows.
    """

    clock: int


class Done(_Message, frozen=True):
    """All of the contribution `clock` is held by all replicas; or there was none, as the portion is empty.

    waited_ms: how long the worker stood still for parameters while it computed it. clip: the bound of the norm of the
    update's gradient, in a loop of one's own; answered by Clipped.
    """

    clock: int
    waited_ms: int = 0
    clip: ClipNorm | None = None


class Evaluated(_Message, frozen=True):
    """The totals of one piece of an evaluation. lost: samples of it that could not be read."""

    snapshot: int
    piece: int
    totals: list[float]
    lost: int = 0


class Figures(_Message, frozen=True):
    """The figures that the totals of a whole evaluation come to. value: of the metric."""

    snapshot: int
    figures: dict[str, float]
    value: float


class Unreachable(_Message, frozen=True):
    """This worker has lost its connection to a server and cannot have another."""

    server: int


class Leave(_Message, frozen=True):
    """This worker goes; what it has not done is free for others. Where every worker is needed, the run ends."""


class Over(_Message, frozen=True):
    """This worker's own loop is over: what it was given and has not done is free for others. It waits for the end.

    Once all loops are over, the run is finished.
    """


class AskSave(_Message, frozen=True):
    """This worker's own loop wants the run saved, with its contributions before `clock`, and waits for SaveEnded."""

    clock: int


# A server to the roster


class Beat(_Message, frozen=True):
    """Several times a second. applied: the update that all its slices have; the others: how often, since the last beat.

    staleness: updates that were applied between the parameters that a contribution was computed with and its own, as
    (worker, staleness, how often). late: contributions that came when they could be in no update any more, as (worker,
    how often). refused: messages that made no sense, by who sent them.
    """

    applied: int
    staleness: list[tuple[int, int, int]] = []
    late: list[tuple[int, int]] = []
    refused: dict[str, int] = {}


class Kept(_Message, frozen=True):
    """Says that the server holds the state of all its slices as of a snapshot."""

    snapshot: int


class PartialNorms(_Message, frozen=True):
    """The norm of an update's gradient, of the kind that `Closing` says. norms: by shard, of all that it keeps."""

    number: int
    norms: dict[int, float]


class Products(_Message, frozen=True):
    """The answer to update `number`, for this server's slices. found: by shard, of all that it keeps."""

    number: int
    found: dict[int, FoundProducts]


class Saved(_Message, frozen=True):
    """Says that the sender's part of a snapshot, slices or residuals, is written and synced. files: checksum by name.

    problem: why it is not.
    """

    snapshot: int
    files: dict[str, str]
    problem: str = ""


FromMember: TypeAlias = (
    Ask
    | Again
    | Computed
    | Done
    | Evaluated
    | Figures
    | Unreachable
    | Leave
    | Over
    | AskSave
    | Beat
    | Kept
    | PartialNorms
    | Products
    | Saved
)
