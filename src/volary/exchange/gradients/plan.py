"""Plans buckets: small parameters together in one, a large one in a bucket of its own, cut into chunks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import torch

from volary.comm.sums.route import BufferShape
from volary.exchange.representations.exact import EXACT
from volary.sharding.ranges import Range

if TYPE_CHECKING:
    from torch import Tensor
    from torch.nn import Parameter

    from volary.exchange.representations._base import Representation

BYTES_PER_MIB = 2**20
FIRST_BYTES = BYTES_PER_MIB  # of the bucket that backward fills first, and of that which the next forward needs first
LINE_VALUES = 16  # gradients begin on a cache line
FORMED_MB = 8.0  # of a product of factors, what is formed and updated at once: it stays in a shared cache, in few calls


@dataclass(frozen=True)
class ChunkPlan:
    """What travels at once: values `start` to `end` of a bucket, and the parameters' parts in it."""

    start: int
    end: int
    parts: tuple[Range, ...]


@dataclass(frozen=True)
class BucketPlan:
    """A bucket: named parameters, one after the other, behind one value for each that tells how many ranks used it.

    representation: of all that travels of it.
    """

    parameters: list[tuple[str, Parameter]]
    dtype: torch.dtype
    device: torch.device
    representation: Representation = EXACT

    @property
    def head(self) -> int:
        """Values of the bucket before its first gradient: one for each parameter, in whole cache lines."""
        return -(-len(self.parameters) // LINE_VALUES) * LINE_VALUES

    @property
    def shape(self) -> BufferShape:
        """The memory that the bucket needs: head and gradients."""
        return BufferShape(self.head + sum(p.numel() for _, p in self.parameters), self.dtype, self.device)

    def pieces(self, flat: Tensor) -> tuple[Tensor, list[Tensor]]:
        """`flat` (numel,) cut up: the values that tell who used what, and each parameter's, flat."""
        head, *own = torch.split(flat, [self.head, *(p.numel() for _, p in self.parameters)])
        return head[: len(self.parameters)], own

    def cuts(self, at_most_mb: float) -> list[ChunkPlan]:
        """What is updated at once: all of it, or of large parameters blocks of whole rows of about that size.

        It is also what travels at once, but for what travels by layer and is formed block by block.
        """
        if self.representation.by_layer:
            at_most_mb = FORMED_MB
        values = max(1, int(at_most_mb * BYTES_PER_MIB) // self.dtype.itemsize)
        if len(self.parameters) > 1 and not self.representation.by_layer:
            parts = tuple(Range(name, 0, parameter.numel()) for name, parameter in self.parameters)
            return [ChunkPlan(0, self.shape.numel, parts)]
        cuts, at = list[ChunkPlan](), self.head
        for name, parameter in self.parameters:
            for start, end in _blocks(parameter, values):
                cuts.append(ChunkPlan(at + start if cuts else 0, at + end, (Range(name, start, end),)))
            at += parameter.numel()
        return cuts


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


@dataclass
class _Filling:
    """A bucket that is being filled, up to `most_bytes`.

    parameters: in the order of backward. last: the number of the last one in it.
    """

    representation: Representation
    parameters: list[tuple[str, Parameter]]
    most_bytes: float
    size_bytes: int = 0
    last: int = 0


def plan(
    named: list[tuple[str, Parameter]], bucket_mb: float, representations: Mapping[str, Representation] | None = None
) -> list[BucketPlan]:
    """Cut parameters, given in the network's order, into buckets in the order in which backward is through with them.

    bucket_mb: size in MiB at which a bucket is closed; a parameter of that size has a bucket to itself.
    representations: of each parameter that does not travel as it is. Buckets of several representations and types are
    filled side by side, so that a normalisation layer between two encoded ones does not part them; what travels by
    layer has a bucket to itself. Of what travels as it is the first buckets are smaller: nothing can leave until the
    first is whole, and it is the last that forward waits for.
    """
    bucket_bytes = bucket_mb * BYTES_PER_MIB
    found: list[_Filling] = []
    filling: dict[tuple[Any, ...], _Filling] = {}
    kinds = {name: _kind(name, parameter, (representations or {}).get(name, EXACT)) for name, parameter in named}
    whole_bytes = Counter[tuple[Any, ...]]()
    for name, parameter in named:
        whole_bytes[kinds[name]] += _bytes(parameter)
    for number, (name, parameter) in enumerate(reversed(named)):
        kind = kinds[name]
        representation: Representation = kind[0]
        own_bytes = 0 if representation.by_layer else _bytes(parameter)
        group = filling.get(kind)
        if group is None or group.size_bytes + own_bytes > group.most_bytes:
            first_bytes = FIRST_BYTES if representation == EXACT and whole_bytes[kind] > bucket_bytes else bucket_bytes
            most_bytes = min(bucket_bytes, first_bytes if group is None else 2 * group.most_bytes)
            group = filling[kind] = _Filling(representation, [], most_bytes)
            found.append(group)
        group.parameters.append((name, parameter))
        group.size_bytes, group.last = group.size_bytes + own_bytes, number
    groups = [(one.representation, one.parameters) for one in sorted(found, key=lambda one: one.last)]
    if len(groups) > 1 and not groups[-1][0].by_layer:
        representation, parameters = groups.pop()
        groups += [(representation, part) for part in _split_first_layers(parameters)]
    return [
        BucketPlan(group, group[0][1].dtype, group[0][1].device, representation) for representation, group in groups
    ]


def _kind(name: str, parameter: Parameter, representation: Representation) -> tuple[Any, ...]:
    """What parameters of one bucket have in common; its representation first."""
    layer = name.rpartition(".")[0] if representation.by_layer else None
    return representation, parameter.dtype, parameter.device, layer


def _split_first_layers(group: list[tuple[str, Parameter]]) -> list[list[tuple[str, Parameter]]]:
    left, cut = FIRST_BYTES, len(group)
    while cut and (left := left - _bytes(group[cut - 1][1])) >= 0:
        cut -= 1
    return [part for part in (group[:cut], group[cut:]) if part]


def _bytes(parameter: Parameter) -> int:
    return parameter.numel() * parameter.element_size()
