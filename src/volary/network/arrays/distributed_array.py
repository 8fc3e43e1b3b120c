"""A tensor that is cut over workers, each of which has a box of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any

import torch
from torch import Tensor

from volary.errors import BadInput
from volary.network.arrays.boxes import Box, cut, whole
from volary.network.blocks.communication import TensorChannel, pass_tensors

_KIND = "a distributed array's exchange"


class DistributedArray:
    """A tensor of `shape`, of which this worker has `values`, the box of its rank among `boxes`.

    channel: `worker.channel()`. boxes: of all workers, in the order of ranks; some may be empty. All workers make the
    same arrays, and call what communicates (`recut`, `gather`, `reduce`) in the same order. Gradients flow through all
    of it; they are of the sum of all workers' losses. Raises BadInput if `values` has not its box's shape.
    """

    def __init__(self, channel: TensorChannel, values: Tensor, boxes: Sequence[Box]) -> None:
        self.channel, self.values, self.boxes = channel, values, tuple(boxes)
        if len(self.boxes) != channel.size:
            raise BadInput(
                f"an array was given {len(self.boxes)} boxes; accepted: one for each of {channel.size} workers"
            )
        if tuple(values.shape) != self.box.shape:
            raise BadInput(
                f"worker {channel.rank} has a block of shape {list(values.shape)} where its box is of shape "
                f"{list(self.box.shape)}; accepted: the box's shape"
            )
        self.shape = tuple(max(ends) for ends in zip(*(box.ends for box in self.boxes), strict=True))

    @property
    def box(self) -> Box:
        """The box of values that this worker has."""
        return self.boxes[self.channel.rank]

    @classmethod
    def made(
        cls,
        channel: TensorChannel,
        shape: Sequence[int],
        function: Callable[..., Tensor],
        grid: Sequence[int] | None = None,
    ) -> DistributedArray:
        """Make an array by `function`, which is given the indices along each dimension and returns the values there.

        Indices are int64 tensors that broadcast to the block's shape. grid: parts along each dimension; None: rows are
        cut. Each worker computes its own block alone. Raises BadInput.
        """
        boxes = _boxes(channel, shape, grid)
        own = boxes[channel.rank]
        along = [torch.arange(start, end) for start, end in zip(own.starts, own.ends, strict=True)]
        return cls(channel, function(*torch.meshgrid(*along, indexing="ij")), boxes)

    @classmethod
    def of(cls, channel: TensorChannel, tensor: Tensor, grid: Sequence[int] | None = None) -> DistributedArray:
        """Cut a tensor that all workers have, without communication. grid: as `made`. Raises BadInput."""
        boxes = _boxes(channel, tensor.shape, grid)
        return cls(channel, tensor[boxes[channel.rank].within(whole(tensor.shape))], boxes)

    def map(self, function: Callable[..., Tensor], *others: DistributedArray) -> DistributedArray:
        """Apply `function` to each worker's block, and to those of others that are cut alike.

        The result keeps the size of each dimension that is cut; others may change. That is checked for all workers'
        blocks before anything is computed, on tensors without values. Raises BadInput.
        """
        for other in others:
            if other.boxes != self.boxes:
                raise BadInput(
                    f"arrays of shapes {list(self.shape)} and {list(other.shape)} are cut differently; accepted: one "
                    "that was cut anew, by recut(boxes=other.boxes)"
                )
        boxes = tuple(self._mapped(function, rank, others) for rank in range(self.channel.size))
        return DistributedArray(self.channel, function(self.values, *(one.values for one in others)), boxes)

    def map_rows(self, function: Callable[[Tensor], Tensor]) -> DistributedArray:
        """Apply `function` to each row, along the first dimension, with `torch.vmap`. Raises BadInput.

        Rows lie whole on their workers: `recut()` brings them there.
        """
        if any(self._is_cut(dim) for dim in range(1, len(self.shape))):
            raise BadInput(f"rows of an array of shape {list(self.shape)} are cut; accepted: whole rows, by recut()")

        def rows(block: Tensor) -> Tensor:
            if len(block):
                return torch.vmap(function)(block)
            one = function(torch.empty(block.shape[1:], dtype=block.dtype, device="meta"))  # of no row, its shape
            return torch.empty((0, *one.shape), dtype=one.dtype, device=block.device)

        return self.map(rows)

    def recut(self, grid: Sequence[int] | None = None, boxes: Sequence[Box] | None = None) -> DistributedArray:
        """The same values, cut anew; what a worker has already does not travel.

        grid: as `made`. boxes: instead, one for each worker; these may overlap, as where windows need their neighbours'
        entries, and the gradients of an entry add up. Raises BadInput if blocks of this array overlap.
        """
        wanted = _boxes(self.channel, self.shape, grid) if boxes is None else tuple(boxes)
        if sum(box.size for box in self.boxes) != prod(self.shape):
            raise BadInput(
                f"some entries of an array of shape {list(self.shape)} lie on several workers; accepted: one whose "
                "blocks do not overlap"
            )
        mine = wanted[self.channel.rank]
        leaving = {rank: self.box.common(box) for rank, box in enumerate(wanted)}
        outgoing = {rank: self.values[part.within(self.box)] for rank, part in leaving.items() if part.size}
        coming = {rank: part for rank, box in enumerate(self.boxes) if (part := box.common(mine)).size}
        # of this block even if nothing of it is passed on: whoever calls backward need not know
        values = self.values.new_zeros(mine.shape) + self.values.flatten()[:0].sum().to(self.values.dtype)
        if outgoing or coming:
            arrived = pass_tensors(self.channel, _KIND, outgoing, list(coming))
            if coming:
                for part, block in zip(coming.values(), arrived, strict=True):
                    values[part.within(mine)] = block
            else:
                values = values + arrived[0].to(values.dtype)  # no value, through which gradients come
        return DistributedArray(self.channel, values, wanted)

    def gather(self) -> Tensor:
        """All values, on every worker. Raises what `recut` raises."""
        return self.recut(boxes=[whole(self.shape)] * self.channel.size).values

    def reduce(
        self, within: Callable[[Tensor], Tensor], between: Callable[[Tensor, Tensor], Tensor] = torch.add
    ) -> Tensor:
        """One tensor, on every worker: `within` makes it of a block, `between` one of two, in a tree of log2(workers).

        `between` need only be associative: what it is given comes in the order of ranks. Blocks without values take no
        part. Raises BadInput if no block has values, or blocks come to different shapes.
        """
        ranks = [rank for rank, box in enumerate(self.boxes) if box.size]
        shapes = {tuple(self._tried(within, rank).shape) for rank in ranks}
        if len(shapes) != 1:
            found = " and ".join(str(list(one)) for one in sorted(shapes)) or "nothing, as it is empty"
            raise BadInput(f"blocks of an array come to {found}; accepted: the same shape of all blocks")
        place = ranks.index(self.channel.rank) if self.channel.rank in ranks else None
        zeros = list[Tensor]()
        total = within(self.values) if place is not None else torch.zeros(())
        step = 1
        while place is not None and step < len(ranks):
            if place % (2 * step) == step:
                zeros += pass_tensors(self.channel, _KIND, {ranks[place - step]: total}, ())
                break
            if place + step < len(ranks):
                total = between(total, *pass_tensors(self.channel, _KIND, {}, [ranks[place + step]]))
            step *= 2
        everybody = dict.fromkeys(range(self.channel.size), total) if self.channel.rank == ranks[0] else {}
        (total,) = pass_tensors(self.channel, _KIND, everybody, [ranks[0]])
        for zero in zeros:
            if zero.requires_grad:
                total = total + zero.to(total.dtype)
        return total

    def _is_cut(self, dim: int) -> bool:
        return any((box.starts[dim], box.ends[dim]) != (0, self.shape[dim]) for box in self.boxes)

    def _tried(self, function: Callable[..., Tensor], rank: int, others: Sequence[DistributedArray] = ()) -> Tensor:
        """Return what `function` makes of the block of `rank`, without values. Raises BadInput."""
        blocks = [torch.empty(self.boxes[rank].shape, dtype=one.values.dtype, device="meta") for one in (self, *others)]
        try:
            found: Any = function(*blocks)
        except Exception as error:
            shapes = " and ".join(str(list(block.shape)) for block in blocks)
            raise BadInput(f"the function cannot be applied to a block of shape {shapes}: {error}") from error
        if not isinstance(found, Tensor):
            raise BadInput(f"the function made a {type(found).__name__} of a block; accepted: a tensor")
        return found

    def _mapped(self, function: Callable[..., Tensor], rank: int, others: Sequence[DistributedArray]) -> Box:
        """The box of what `function` makes of the block of `rank`. Raises BadInput."""
        box, shape = self.boxes[rank], tuple(self._tried(function, rank, others).shape)
        cuts = [dim for dim in range(len(self.shape)) if self._is_cut(dim)]
        if len(shape) != len(self.shape) or any(shape[dim] != box.shape[dim] for dim in cuts):
            raise BadInput(
                f"the function made {list(shape)} of a block of shape {list(box.shape)}; accepted: as many dimensions, "
                f"and the same sizes where the array is cut, along {' and '.join(map(str, cuts)) or 'none'}"
            )
        spans = [(box.starts[dim], box.ends[dim]) if dim in cuts else (0, size) for dim, size in enumerate(shape)]
        return Box(tuple(low for low, _ in spans), tuple(high for _, high in spans))


def _boxes(channel: TensorChannel, shape: Sequence[int], grid: Sequence[int] | None) -> tuple[Box, ...]:
    return cut(shape, (channel.size, *[1] * (len(shape) - 1)) if grid is None else grid, channel.size)
