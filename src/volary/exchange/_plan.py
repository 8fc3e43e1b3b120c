"""Which parameters travel together: small ones in one bucket, a large one in a bucket of its own, cut into chunks."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

import torch

from volary.comm.routes._base import Shape

if TYPE_CHECKING:
    from torch import Tensor
    from torch.nn import Parameter

BYTES_PER_MIB = 2**20
FIRST_BYTES = BYTES_PER_MIB  # the network's first layers are needed first: their bucket is no larger
LINE_VALUES = 16  # gradients begin on a cache line


@dataclass(frozen=True)
class Part:
    """Values `start` to `end`, in the order in memory, of the bucket's parameter number `parameter`."""

    parameter: int
    start: int
    end: int


@dataclass(frozen=True)
class Cut:
    """What travels at once: values `start` to `end` of a bucket, and the parameters' parts in it."""

    start: int
    end: int
    parts: tuple[Part, ...]


@dataclass(frozen=True)
class Plan:
    """A bucket: named parameters, one after the other, behind one value for each that tells how many ranks used it."""

    parameters: list[tuple[str, Parameter]]
    dtype: torch.dtype
    device: torch.device

    @property
    def head(self) -> int:
        """Values before the first gradient."""
        return -(-len(self.parameters) // LINE_VALUES) * LINE_VALUES

    @property
    def shape(self) -> Shape:
        """What memory it needs."""
        return Shape(self.head + sum(p.numel() for _, p in self.parameters), self.dtype, self.device)

    def pieces(self, flat: Tensor) -> tuple[Tensor, list[Tensor]]:
        """`flat` (numel,) cut up: the values that tell who used what, and each parameter's, flat."""
        head, *own = torch.split(flat, [self.head, *(p.numel() for _, p in self.parameters)])
        return head[: len(self.parameters)], own

    def cuts(self, at_most_mb: float) -> list[Cut]:
        """What travels at once: all of it, or of a single large parameter blocks of whole rows of about that size."""
        values = max(1, int(at_most_mb * BYTES_PER_MIB) // self.dtype.itemsize)
        if len(self.parameters) != 1 or self.parameters[0][1].numel() <= values:
            ends, at = [], 0
            for number, (_, parameter) in enumerate(self.parameters):
                ends.append(Part(number, 0, parameter.numel()))
                at += parameter.numel()
            return [Cut(0, self.head + at, tuple(ends))]
        return _blocks(self.parameters[0][1], self.head, values)


def _blocks(parameter: Parameter, head: int, values: int) -> list[Cut]:
    row = row_values(parameter)
    rows = parameter.numel() // row
    count = min(rows, -(-parameter.numel() // values))
    bounds = [rows * number // count * row for number in range(count + 1)]
    return [Cut(head + start if start else 0, head + end, (Part(0, start, end),)) for start, end in pairwise(bounds)]


def row_values(parameter: Tensor) -> int:
    """Values of one row: what lies together in memory for one index of the first dimension."""
    if parameter.dim() > 1 and parameter.stride(0) * parameter.shape[0] == parameter.numel():
        return parameter.stride(0)
    return 1


def in_memory_order(tensor: Tensor) -> Tensor:
    """The values of a dense tensor as (numel,), in the order in which they lie in memory; a view."""
    return tensor.as_strided((tensor.numel(),), (1,))


def laid_out_as(parameter: Tensor, piece: Tensor) -> Tensor:
    """`piece` (numel,) in the parameter's shape and order in memory: fused updates read both as one flat run."""
    return piece.as_strided(parameter.shape, torch.empty_like(parameter, device="meta").stride())


def plan(named: list[tuple[str, Parameter]], bucket_mb: float) -> list[Plan]:
    """Cut parameters, given in the network's order, into buckets in the order in which backward reaches them.

    bucket_mb: size in MiB at which a bucket is closed; a parameter of that size has a bucket to itself.
    """
    bucket_bytes = bucket_mb * BYTES_PER_MIB
    groups: list[list[tuple[str, Parameter]]] = []
    filled = 0.0
    for name, parameter in reversed(named):
        like = groups[-1][-1][1] if groups else None
        alike = like is not None and like.dtype == parameter.dtype and like.device == parameter.device
        if not alike or filled + _bytes(parameter) > bucket_bytes:
            groups.append([])
            filled = 0
        groups[-1].append((name, parameter))
        filled += _bytes(parameter)
    if len(groups) > 1:
        groups[-1:] = _split_first_layers(groups[-1])
    return [Plan(group, group[0][1].dtype, group[0][1].device) for group in groups]


def _split_first_layers(group: list[tuple[str, Parameter]]) -> list[list[tuple[str, Parameter]]]:
    left, cut = FIRST_BYTES, len(group)
    while cut and (left := left - _bytes(group[cut - 1][1])) >= 0:
        cut -= 1
    return [part for part in (group[:cut], group[cut:]) if part]


def _bytes(parameter: Parameter) -> int:
    return parameter.numel() * parameter.element_size()
