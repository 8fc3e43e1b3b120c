"""What every route does: it gives buffers their memory, and sums ranges of them over all ranks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    import torch
    from torch import Tensor


class Bulletin(Protocol):
    """How ranks tell each other small values before the first step."""

    rank: int
    world_size: int

    def post(self, topic: str, value: Any) -> None:
        """Post this rank's value under `topic`."""
        ...

    def read(self, topic: str, rank: int) -> Any:
        """What `rank` posts under `topic`; waits for it."""
        ...

    def share(self, topic: str, value: Any) -> list[Any]:
        """Post a value and read everybody's, by rank."""
        ...

    def within(self, part: str) -> Bulletin:
        """A part of it, whose topics are its own."""
        ...


@dataclass(frozen=True)
class Shape:
    """What a buffer needs memory for: `numel` values of `dtype` on `device`."""

    numel: int
    dtype: torch.dtype
    device: torch.device


@dataclass(frozen=True)
class Memory:
    """A buffer's values, (numel,) each: what this rank contributes, and what was agreed. They may be the same.

    Where they are not, others read `agreed` too: it must not be written.
    """

    contribution: Tensor
    agreed: Tensor


class Arrival(Protocol):
    """A sum that is under way."""

    def wait(self) -> None:
        """Return when the range holds the sum. Raises PeerLost if a peer went away."""
        ...


class Route(Protocol):
    """Sums buffers over all ranks. Used from one thread, and alike on all ranks.

    in_flight: how many sums may be under way at once; they are waited for in the order in which they were begun.
    """

    in_flight: int

    @property
    def sent_bytes(self) -> int:
        """What this process put on the wire since it started."""
        ...

    @property
    def received_bytes(self) -> int:
        """What this process took off the wire since it started."""
        ...

    @property
    def memory(self) -> Sequence[Memory]:
        """Each buffer's, in the order of their shapes."""
        ...

    def sum_up(self, buffer: int, start: int, end: int) -> Arrival:
        """Sum the values from `start` to `end` of a buffer over all ranks; all call it in the same order.

        It may return before the sum is there, or only then. Raises PeerLost if a peer went away.
        """
        ...
