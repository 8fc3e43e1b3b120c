"""The plan of a bucket: which parameters it holds, one after the other, and in which chunks their gradients travel."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Protocol

import torch

from volary.comm.sums.route import BufferShape
from volary.sharding.ranges import Range

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torch import Tensor
    from torch.nn import Parameter

    from volary.codec._base import FrameCodec

BYTES_PER_MIB = 2**20
LINE_VALUES = 16  # gradients begin on a cache line
FORMED_MB = 8.0  # of a product of factors, what is formed and updated at once: it stays in a shared cache, in few calls


class TravelForm(Protocol):
    """How a bucket's gradients travel, as far as buckets have to know; see `volary.exchange.representations._base`."""

    @property
    def name(self) -> str: ...
    @property
    def by_layer(self) -> bool: ...
    @property
    def travels(self) -> bool: ...
    @property
    def frames(self) -> FrameCodec | None: ...
    def at(self, samples: int) -> TravelForm: ...
    def wire_bytes(self, values: int, value_bytes: int) -> int: ...


@dataclass(frozen=True)
class ChunkPlan:
    """The values `start` to `end` of a bucket, which travel at once, and the parameters' parts in them."""

    start: int
    end: int
    parts: tuple[Range, ...]


@dataclass(frozen=True)
class BucketPlan:
    """A bucket: named parameters, one after the other, behind one value for each that tells how many ranks used it.

    representation: of all that travels of it, but for the last `plain` parameters: they travel as they are, with frames
    of the others.
    """

    parameters: list[tuple[str, Parameter]]
    dtype: torch.dtype
    device: torch.device
    representation: TravelForm
    plain: int = 0

    @property
    def head(self) -> int:
        """Values of the bucket before its first gradient: one for each parameter, in whole cache lines."""
        return -(-len(self.parameters) // LINE_VALUES) * LINE_VALUES

    @property
    def shape(self) -> BufferShape:
        """The memory that the bucket needs: head and gradients."""
        return BufferShape(self.head + sum(p.numel() for _, p in self.parameters), self.dtype, self.device)

    @property
    def plain_start(self) -> int:
        """The place of the first value that travels as it is beside frames, or the end."""
        return self.shape.numel - sum(p.numel() for _, p in self.parameters[len(self.parameters) - self.plain :])

    def pieces(self, flat: Tensor) -> tuple[Tensor, list[Tensor]]:
        """`flat` (numel,) cut up: the values that tell who used what, and each parameter's, flat."""
        head, *own = torch.split(flat, [self.head, *(p.numel() for _, p in self.parameters)])
        return head[: len(self.parameters)], own

    def cuts(self, at_most_mb: float) -> list[ChunkPlan]:
        """Cut into what is updated at once: all of it, or large parameters in blocks of whole rows of about this size.

        Each also travels at once, unless gradients travel by layer and are formed block by block.
        """
        if self.representation.by_layer:
            at_most_mb = FORMED_MB
        values = max(1, int(at_most_mb * BYTES_PER_MIB) // self.dtype.itemsize)
        if not self.representation.travels:  # as many chunks on each rank, however large its part is
            values = max(1, *(parameter.numel() for _, parameter in self.parameters))
        if len(self.parameters) > 1 and not self.representation.by_layer:
            parts = tuple(Range(name, 0, parameter.numel()) for name, parameter in self.parameters)
            return [ChunkPlan(0, self.shape.numel, parts)]
        cuts, at = list[ChunkPlan](), self.head
        for name, parameter in self.parameters:
            for start, end in _blocks(parameter, values):
                cuts.append(ChunkPlan(at + start if cuts else 0, at + end, (Range(name, start, end),)))
            at += parameter.numel()
        return cuts


def parts_in(plan: BucketPlan, start: int, end: int) -> Iterator[tuple[int, Range]]:
    """Yield each parameter's part between `start` and `end` of a bucket, after the place of its first value there."""
    at = plan.head
    for name, parameter in plan.parameters:
        low, high = max(at, start), min(at + parameter.numel(), end)
        if low < high:
            yield low, Range(name, low - at, high - at)
        at += parameter.numel()


def _blocks(parameter: Parameter, values: int) -> list[tuple[int, int]]:
    """Whole rows, of about so many values."""
    row = row_values(parameter)
    rows = parameter.numel() // row
    count = max(1, min(rows, -(-parameter.numel() // values)))
    return list(pairwise(rows * number // count * row for number in range(count + 1)))


def row_values(parameter: Tensor) -> int:
    """Values of one row of (rows, ...): what lies together in memory for one index of the first dimension."""
    if parameter.dim() > 1 and parameter.stride(0) * parameter.shape[0] == parameter.numel():
        return parameter.stride(0)
    return 1


def in_memory_order(tensor: Tensor) -> Tensor:
    """The values of a dense tensor as (numel,), in the order in which they lie in memory; a view."""
    return tensor.as_strided((tensor.numel(),), (1,))


def values_in(part: Range, tensor: Tensor) -> Tensor:
    """The values of `part` of a dense tensor, (size,), in the order in memory; a view."""
    # views share their tensor's version: whoever still needs the old values in a backward is told by autograd
    return in_memory_order(tensor.detach())[part.start : part.end]


def laid_out_as(parameter: Tensor, piece: Tensor) -> Tensor:
    """`piece` (numel,) in the parameter's shape and order in memory: fused updates read both as one flat run."""
    return piece.as_strided(parameter.shape, torch.empty_like(parameter, device="meta").stride())
