"""Messages between workers, servers and the run's roster: small and plain, over the keyed server.

The first message of a connection is its hello (a mapping, see `volary.comm.control.service`): a `WorkerHello` or
`ServerHello`.
"""

from __future__ import annotations

from typing import Any, TypeAlias

from msgspec import Struct

from volary.server.protocol.norms import ClipNorm


class Contribution(Struct, frozen=True, array_like=True, order=True):
    """One worker's share of an update: what it pushed with this clock."""

    worker: int
    clock: int


class Portion(Struct, frozen=True, array_like=True):
    """Samples `start` to `end` of the order of `epoch`, to be learnt from once. number: unique in the run."""

    number: int
    epoch: int
    start: int
    end: int


class Closing(Struct, frozen=True, array_like=True):
    """An update: number 1, 2, ... of the run; every server applies all of them, in this order.

    contributions: what it is the sum of; none: nothing changes but the version. scale: factor of that sum. samples:
    that the run has learnt from, this update included. dropped: contributions that will be in no update. rates: the
    learning rates to use, as workers sent them; none: those of the session's schedule. norm: the kind of norm of the
    gradient that servers find (PartialNorms) before they apply it, times Clip's factor; None: they apply it at once.
    """

    number: int
    contributions: tuple[Contribution, ...]
    scale: float
    samples: int
    dropped: tuple[Contribution, ...] = ()
    rates: tuple[float, ...] = ()
    norm: float | None = None


class _Message(Struct, frozen=True, forbid_unknown_fields=True, tag_field="kind", tag=str.lower):
    pass


# How one introduces itself


class WorkerHello(Struct, frozen=True, tag_field="is", tag="worker"):
    """rank: its place, which nobody had before. facts: what all workers must agree on, by name.

    samples, validation: how many there are to learn from and to evaluate on. metric, higher_is_better: what is best.
    residuals: its codecs leave something out, which belongs to checkpoints. batch_size: samples of a global batch, if a
    loop of one's own says it; 0: the session does.
    """

    rank: int
    facts: dict[str, str]
    samples: int
    validation: int
    metric: str
    higher_is_better: bool
    residuals: bool = False
    batch_size: int = 0


class ServerHello(Struct, frozen=True, tag_field="is", tag="server"):
    """number: of the run's servers, from 0. host, port: where it listens for workers. pid: its process."""

    number: int
    host: str
    port: int
    pid: int


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


class Saved(_Message, frozen=True):
    """Says that the sender's part of a snapshot, slices or residuals, is written and synced. files: checksum by name.

    problem: why it is not.
    """

    snapshot: int
    files: dict[str, str]
    problem: str = ""


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
    """Evaluate the state `snapshot`, of the step `step`, on the validation samples `start` to `end`."""

    snapshot: int
    piece: int
    start: int
    end: int
    step: int = 0


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


class End(_Message, frozen=True):
    """The run is over for this member. outcome: finished or stopped; anything else: why it has to go.

    unsaved: why its last checkpoint is not there.
    """

    outcome: str
    unsaved: str = ""


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


Hello: TypeAlias = WorkerHello | ServerHello
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
    | Saved
)
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
    | Keep
    | Save
    | Release
    | Gone
    | Acknowledged
)
Plain: TypeAlias = Any  # a message as msgpack has it, not yet judged
