"""The protocol of coordinators, which say what a worker does next: learn from samples, evaluate, save, or end."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, Protocol

if TYPE_CHECKING:
    from torch import Tensor

    from volary.data.batching.batch import Batch
    from volary.run.checkpoints import Manifest
    from volary.train.agreement.first_state import DeferredTensors
    from volary.train.agreement.votes import Agreed
    from volary.train.recovery.kept_state import KeptState

Outcome = Literal["finished", "stopped", "left"]


@dataclass(frozen=True, eq=False)
class MicroBatch:
    """The samples of a batch that pass through this worker's network at once.

    inputs (count, ...) and targets (count, ...), or what a loop of one's own computes with. counted: what their loss is
    a mean over, in samples; 0: nothing, and there is no loss. weight: the factor of that mean. last: of the
    contribution. updates: the worker updates its own replica after it. number: the number in the data of the sample at
    a place.
    """

    inputs: Any
    targets: Any
    count: int
    counted: float
    weight: float
    last: bool
    updates: bool
    number: Callable[[int], int]


@dataclass(frozen=True, eq=False)
class LearnTask:
    """Compute a contribution, from parts that are read as they are asked for.

    clock: its number on this worker. samples: that the run has learnt from before it. oldest: the least update that
    parameters must hold which it is computed with.
    """

    parts: Iterator[MicroBatch]
    clock: int
    samples: int
    oldest: int


@dataclass(frozen=True, eq=False)
class EvaluateTask:
    """Measure the network on `batches` of the validation data while it has the `state` to be measured.

    state: gives False if that state is not there any more. measured: told the totals of all batches, float64 (measured,
    2), and how many of their samples could not be read, of how many; None: nothing is measured. step: of the state.
    writes: whether this worker takes part if the network writes a text, and reports: whether it says what was written.
    """

    batches: Iterable[Batch]
    state: AbstractContextManager[bool]
    measured: Callable[[Tensor, int, int], None] | None
    step: int
    writes: bool
    reports: bool


@dataclass(frozen=True, eq=False)
class SaveTask:
    """Write a checkpoint, once all updates are in the parameters."""

    write: Callable[[], None]


Task = LearnTask | EvaluateTask | SaveTask


class Coordinator(Protocol):
    """Says what is next, and is told when it is done. Iterating gives tasks until the run is over for this worker.

    outcome: how it ended.
    """

    @property
    def outcome(self) -> Outcome:
        """How training ended for this worker; known once there are no more tasks."""
        ...

    def __iter__(self) -> Iterator[Task]:
        """Raises NotFinite, RanksDiffer, PeerLost, NotSaved, DataError."""
        ...

    def computed(self, part: MicroBatch, loss: float) -> bool:
        """Forward of a part is over; whether its backward is wanted, and the rest of the contribution."""
        ...

    def complete(self, task: LearnTask) -> None:
        """The contribution is computed, as far as it was wanted. Raises NotFinite, PeerLost."""
        ...


class Saver(Protocol):
    """Writes the checkpoints of a run when a coordinator says so, all ranks together.

    late: of a resumed state, what rank 0 has yet to send to the others besides the parameters.
    """

    late: DeferredTensors

    @property
    def newest(self) -> str:
        """The newest checkpoint of this attempt, in words; once what is being written counts, or has failed."""
        ...

    def prepare(self) -> None:
        """A save is to be expected: take the memory that it needs, beside the steps before it. Changes nothing."""
        ...

    def save(self, metric: float | None, *, last: bool = False) -> None:
        """Write the checkpoint of this step. metric: of the evaluation at this step, if it was the best so far.

        A full disk, or any rank that cannot write, ends the save and not the training: it is told, and the older
        checkpoints stay. last: nothing will be saved after it, so it is tried again for some seconds; raises NotSaved
        then. Saving the same step twice writes once. A collective call: ranks agree among themselves, so that they can
        save without the run's driver, too.
        """
        ...

    def remember(self) -> None:
        """A contribution begins, which may have to be made again without a worker: keep what it changes before its
        update.
        """
        ...

    def keep(self, step: int, due: Agreed | None, begun: int) -> KeptState:
        """Return what this rank has after `step` steps, once nothing exchanges any more.

        due: on the newest contribution, if its update is done and not all that follows it: none is under way. begun:
        the feed's step before that contribution.
        """
        ...

    def remembered(self) -> KeptState:
        """Return what `remember` has kept, without this rank's share of what ranks share out."""
        ...

    def take_over(self, kept: KeptState, *, shared: bool = False) -> tuple[Agreed, int] | None:
        """Continue from what rank 0 has kept, and each rank of its own; as `resume`, but for where that is.

        kept: by this rank. shared: each has its share of the optimiser's state by now. Returns what was agreed on the
        newest contribution, if what follows its update is still to be done, and the feed's step before it.
        """
        ...

    def finish(self) -> None:
        """Training is over, for whatever reason: what is being written comes to its end, or never counts."""
        ...

    def resume(self) -> Manifest | None:
        """Restore the newest whole checkpoint, if the run has one; the same on every rank. Says which were damaged.

        Raises RunError if all are. Rank 0 alone reads what all hold alike; parameters, and what is `late`, come to the
        others when training starts.
        """
        ...
