"""What every exchange does: push a contribution, pull what was agreed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from torch import Tensor

    from volary.comm.routes._base import Memory
    from volary.exchange.gradients.bucket import Chunk, ParameterGate, ParameterSlot
    from volary.exchange.overlap.comm_thread import Parcel, ParcelTimes


@dataclass(frozen=True)
class ExchangeCallbacks:
    """What becomes of what was agreed, told by whoever starts an exchange.

    chunks and slots: what is agreed on, and the parameters in it, in the order in which forward uses them. votes: a
    last parcel that ranks agree on with each step; votes_first: it leaves before the gradients; votes_awaited: nothing
    else leaves before it has come. heard: called when the votes are there. apply: the update of one chunk; None where
    all are updated at once. travelled, applied: told how the first chunk of each parcel fared, and when each was
    applied. first: tasks on the exchange's thread before the first step.
    """

    chunks: Sequence[Chunk]
    slots: Sequence[ParameterSlot]
    votes: Parcel
    votes_first: bool
    heard: Callable[[], None]
    apply: Callable[[Chunk], None] | None
    travelled: Callable[[Chunk, ParcelTimes], None]
    applied: Callable[[Chunk, float, float], None]
    first: Sequence[Callable[[], None]] = ()
    votes_awaited: bool = False


class Exchange(Protocol):
    """Carries contributions to whoever keeps the parameters, and brings back what was agreed.

    route: how, and why so, in a sentence. overlaps: what was agreed may be applied chunk by chunk while other work goes
    on. behind: it is applied a step later. sent_bytes and received_bytes count what this process put on and took off
    the wire since it started.
    """

    route: str
    overlaps: bool
    behind: bool

    @property
    def sent_bytes(self) -> int:
        """Since the start."""
        ...

    @property
    def received_bytes(self) -> int:
        """Since the start."""
        ...

    @property
    def memory(self) -> Sequence[Memory]:
        """Each buffer's, in their order."""
        ...

    def start(self, use: ExchangeCallbacks) -> None:
        """Be ready for the first step."""
        ...

    def broadcast(self, values: Tensor) -> None:
        """Give all ranks rank 0's `values`, contiguous bytes; before the first step, from one thread."""
        ...

    def push(self, number: int) -> None:
        """Let parcel `number` leave (a chunk's, or the number after the last for the votes); returns at once."""
        ...

    def release(self) -> None:
        """Backward is over: parameters may change."""
        ...

    def wait_for(self, done: Callable[[], bool]) -> None:
        """Return when `done`, which something that arrives makes true. Raises PeerLost if a peer went away."""
        ...

    def tell(self, change: Callable[[], None]) -> None:
        """Make a change that somebody may wait for; from any thread."""
        ...

    def pull(self, gate: ParameterGate) -> None:
        """Wait until the parameter behind `gate` is what was agreed. Raises PeerLost if a peer went away."""
        ...

    def settle(self) -> None:
        """Wait until all that was released is agreed and applied; the next step may begin. Raises PeerLost."""
        ...

    def drain(self) -> None:
        """Wait until nothing is left to be applied, not even a step behind. Raises PeerLost."""
        ...

    def reorder(self, order: Sequence[int]) -> None:
        """After `settle`: let chunks travel in this order, which must be the same on all ranks."""
        ...

    def close(self) -> None:
        """End what runs beside the training thread."""
        ...
