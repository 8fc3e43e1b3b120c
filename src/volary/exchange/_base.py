"""The protocol of keepers of parameters: contributions are pushed to them, and nobody reads what is too old."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

if TYPE_CHECKING:
    from torch import Tensor

    from volary.comm.sums.route import Memory
    from volary.exchange.compression.residual import ResidualState
    from volary.exchange.gathering.gathered import GatheredParameters
    from volary.exchange.gradients.bucket import Chunk, ParameterGate, ParameterSlot
    from volary.exchange.overlap.comm_thread import Parcel, ParcelTimes
    from volary.run.database.traffic import Traffic


class Exchange(Protocol):
    """Settings of an exchange, a frozen dataclass which imports no torch: who keeps what the partition shares out.

    equal: replicas are, bit for bit. lacks: traits of `volary.session.fitting.needs` that it has not, each with the
    reason.
    """

    equal: ClassVar[bool]

    @property
    @abstractmethod
    def lacks(self) -> Mapping[Any, str]:
        """The abilities that these settings lack, each with the reason."""
        ...

    @abstractmethod
    def check(self, topology: Any) -> None:
        """Look at what workers would refuse once they have met. topology: of theirs, if it is known by now.

        Raises SettingError.
        """
        ...

    @abstractmethod
    def count(self, workers: int) -> int:
        """Server processes of a run that starts with so many workers, which keep everything; 0: workers do."""
        ...


class Keeper(Protocol):
    """Keeps the parameters, slice by slice, each as of some update: replicated on every worker, or on servers.

    A contribution (gradients, or differences of parameters) is in the buckets' memory; chunk by chunk it leaves, and
    becomes part of an update. Used by the training thread. Besides the parameters, and what the update rule remembers
    of them, the residuals of what was pushed decide how training goes on: `state` and `restore`.
    """

    @property
    def traffic(self) -> tuple[Traffic, ...]:
        """The bytes that this process has sent and received since it started, by codec and route."""
        ...

    def push(self, chunk: int) -> None:
        """Let a chunk of this contribution leave, with those that travel with it; returns at once."""
        ...

    def release(self, at_least: int) -> None:
        """The contribution is complete: parameters may change, and are read as of update `at_least` or newer."""
        ...

    def pull(self, gate: ParameterGate) -> None:
        """Wait until the parameter behind `gate` is new enough, and is what forward reads. Raises PeerLost."""
        ...

    def settle(self) -> None:
        """Wait until all that was pushed counts: buckets may be filled anew. Raises PeerLost."""
        ...

    def state(self, *, copied: bool = True) -> ResidualState:
        """The residuals of all that was pushed, by parameter; while nothing of it is being encoded.

        copied: False: in their own memory, until the next contribution.
        """
        ...

    def restore(self, states: Sequence[ResidualState]) -> None:
        """Between two contributions, continue from what several workers had left out, whatever their buckets were.

        The tensors are the keeper's from now on.
        """
        ...

    def close(self) -> None:
        """End what runs beside the training thread; harmless when repeated."""
        ...


@dataclass(frozen=True)
class KeeperCallbacks:
    """The callbacks of a replicated keeper: given when it starts, called when sums have arrived.

    chunks and slots: what is agreed on, and the parameters in it, in the order in which forward uses them. votes: a
    last parcel that ranks agree on with each step; votes_first: it leaves before the gradients; votes_awaited: nothing
    else leaves before it has come. voted: called when the votes are there. travelled, applied: called with the times of
    each parcel's first chunk, and of its update. apply: the update of one chunk; None where all are updated at once.
    first: tasks on the keeper's thread before the first step.
    """

    chunks: Sequence[Chunk]
    slots: Sequence[ParameterSlot]
    votes: Parcel
    votes_first: bool
    voted: Callable[[], None]
    travelled: Callable[[Chunk, ParcelTimes], None]
    apply: Callable[[Chunk], None] | None = None
    applied: Callable[[Chunk, float, float], None] = lambda *_: None
    first: Sequence[Callable[[], None]] = ()
    votes_awaited: bool = False


class ReplicatedKeeper(Keeper, Protocol):
    """Every worker keeps all parameters: contributions are summed among all, and each applies the sums.

    An update is a step of all workers, and each is to `settle` before the next. route: how sums travel, and why so, in
    a sentence. overlaps: they may be applied chunk by chunk while other work goes on. behind: they are applied a step
    later. memory: each bucket's, in their order, then that of the votes.
    """

    route: str
    overlaps: bool
    behind: bool

    @property
    def gathered(self) -> GatheredParameters | None:
        """Parameters of which a rank has what it keeps, and gathers the rest to compute; None: every rank has all."""
        ...

    @property
    def memory(self) -> Sequence[Memory]:
        """The memory of each buffer, in their order."""
        ...

    def start(self, use: KeeperCallbacks) -> None:
        """Be ready for the first step."""
        ...

    def broadcast(self, values: Tensor) -> None:
        """Give all ranks rank 0's `values`, (bytes,) contiguous; before the first step, from one thread."""
        ...

    def vote(self) -> None:
        """Let the votes leave; returns at once."""
        ...

    def wait_for(self, done: Callable[[], bool]) -> None:
        """Return when `done`, which something that arrives makes true. Raises PeerLost if a peer went away."""
        ...

    def notify(self, change: Callable[[], None]) -> None:
        """Make a change that somebody may wait for; from any thread."""
        ...

    def drain(self) -> None:
        """Wait until nothing is left to be applied, not even a step behind. Raises PeerLost."""
        ...

    def left_out(self, chunk: Chunk, *, all_of_it: bool) -> None:
        """The sums of `chunk`, which are here, change nothing: of parameters that nobody used, or `all_of_it`.

        What their frames carried of earlier contributions waits for the next ones again.
        """
        ...

    def reorder(self, order: Sequence[int]) -> None:
        """Let chunks travel in this order, after `settle`; it must be the same on all ranks."""
        ...
