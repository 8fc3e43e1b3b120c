"""The protocol of routes that are made: they give buffers their memory, and sum ranges of them over all ranks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    import torch
    from torch import Tensor


@dataclass(frozen=True)
class BufferShape:
    """The shape of a buffer, which needs memory for `numel` values of `dtype` on `device`."""

    numel: int
    dtype: torch.dtype
    device: torch.device


@dataclass(frozen=True)
class Memory:
    """A buffer's values, (numel,) each: what this rank contributes, and what was agreed. They may be the same.

    Where they are not, others read `agreed` too: it must not be written. head: what was agreed of its first values, if
    that is somewhere else.
    """

    contribution: Tensor
    agreed: Tensor
    head: Tensor | None = field(default=None, kw_only=True)

    @classmethod
    def in_place(cls, shape: BufferShape) -> Memory:
        """Zeroed memory in which the sum takes the contribution's place."""
        import torch

        values = torch.zeros(shape.numel, dtype=shape.dtype, device=shape.device)
        return cls(values, values)


class Arrival(Protocol):
    """A sum that is under way."""

    def wait(self) -> None:
        """Return when the range holds the sum. Raises PeerLost if a peer went away."""
        ...


class BufferSums(Protocol):
    """Sums buffers over all ranks. Used from one thread, and alike on all ranks.

    in_flight: how many sums may be under way at once; they are waited for in the order in which they were begun.
    """

    in_flight: int

    @property
    def memory(self) -> Sequence[Memory]:
        """The memory of each buffer, in the order of their shapes."""
        ...

    def sum_up(self, buffer: int, start: int, end: int) -> Arrival:
        """Sum the values from `start` to `end` of a buffer over all ranks; all call it in the same order.

        It may return before the sum is there, or only then. Raises PeerLost if a peer went away.
        """
        ...


class Route(BufferSums, Protocol):
    """Sums of values that travel as they are. sent_bytes, received_bytes: by this process since it started."""

    @property
    def sent_bytes(self) -> int:
        """Bytes that this process put on the wire since it started."""
        ...

    @property
    def received_bytes(self) -> int:
        """Bytes that this process took off the wire since it started."""
        ...
