"""A worker's memory of each slice: where its contribution is, and where its values go."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import TYPE_CHECKING

import torch

from volary.exchange.gradients.plan import values_in
from volary.exchange.representations import representation_in
from volary.exchange.representations._base import Piece
from volary.exchange.servers.keeper import WorkerSlice
from volary.exchange.servers.pulled import Pulled
from volary.exchange.servers.pushed import PlainValues
from volary.exchange.servers.pushed_factors import FactorRows

if TYPE_CHECKING:
    from torch import Tensor, nn

    from volary.codec._base import FrameCodec
    from volary.exchange.compression.push_encoding import PushEncoding
    from volary.exchange.gradients.buckets import Buckets
    from volary.server.client.values import PushedValues
    from volary.server.protocol.slices import Slice
    from volary.train.served.layout import Layout


class Statistics:
    """The buffers of one chunk side by side, as they are pushed: batch norm's statistics, counters, and others."""

    def __init__(self, layout: Layout, chunk: int) -> None:
        self.chunk = chunk
        self._network = [layout.values(part) for part in layout.chunks[chunk]]
        self.values = torch.cat([values.flatten() for values in self._network])

    def take(self) -> None:
        """Copy the network's statistics, to be pushed."""
        torch.cat(self._network, out=self.values)


class WorkerSlices:
    """The memory of all slices, in the order in which forward uses them; the buffers' first.

    factors: of the buckets that travel so, by number. statistics: of each chunk of buffers. codec: of differences in
    pulls.
    """

    def __init__(
        self,
        layout: Layout,
        module: nn.Module,
        buckets: Buckets,
        statistics: Sequence[Statistics],
        encoding: PushEncoding,
        codec: FrameCodec | None,
    ) -> None:
        self._layout, self._buckets, self._encoding, self._codec = layout, buckets, encoding, codec
        self._statistics = {one.chunk: one for one in statistics}
        payloads = [bucket.payload for bucket in buckets.all]
        self.factors = {number: FactorRows(payload) for number, payload in enumerate(payloads) if payload is not None}
        self._places = {
            name: (bucket, number)
            for bucket, plan in enumerate(layout.plans)
            for number, (name, _) in enumerate(plan.parameters)
        }
        order = {id(one): place for place, one in enumerate(module.parameters())}
        self.all = [self._worker_slice(one) for one in sorted(layout.slices, key=lambda one: self._use(one, order))]
        self.buffers = [one.slice.number for one in self.all if layout.is_of_buffers(one.slice)]

    def behind(self) -> dict[int, list[int]]:
        """The slices that hold a parameter's values, by the parameter's id."""
        found: dict[int, list[int]] = {}
        for worker_slice in self.all:
            for part in worker_slice.slice.parts:
                found.setdefault(id(self._layout.tensors[part.name]), []).append(worker_slice.slice.number)
        return found

    def by_tensor(self, values: Mapping[int, Tensor]) -> list[tuple[Tensor, Tensor]]:
        """The network's own tensors (...), and what `values` by slice have for them, in their shape."""
        found = {name: (own, torch.empty_like(own)) for name, own in self._layout.tensors.items()}
        for one in self.all:
            parts = values[one.slice.number].split_with_sizes([part.size for part in one.slice.parts])
            for part, some in zip(one.slice.parts, parts, strict=True):
                values_in(part, found[part.name][1].detach()).copy_(some)
        return list(found.values())

    def _use(self, one: Slice, order: dict[int, int]) -> int:
        return min(order.get(id(self._layout.tensors[part.name]), -1) for part in one.parts)

    def _worker_slice(self, one: Slice) -> WorkerSlice:
        network = [self._layout.values(part) for part in one.parts]
        codec = self._codec if network[0].dtype == torch.float32 else None
        return WorkerSlice(one, self._pushed(one), Pulled(network, codec))

    def _pushed(self, one: Slice) -> PushedValues:
        if self._layout.is_of_buffers(one):
            return PlainValues(self._statistics[one.chunk].values[self._run(one)])
        bucket_number, first = self._places[one.parts[0].name]
        bucket, plan = self._buckets.all[bucket_number], self._layout.plans[bucket_number]
        start = plan.head + sum(p.numel() for _, p in plan.parameters[:first]) + one.parts[0].start
        values, users = bucket.contribution[start : start + one.size], bucket.used[first : first + len(one.parts)]
        piece = Piece(bucket_number, plan, start, one.parts, values, users, self.factors.get(bucket_number))
        return representation_in(plan).pushed(piece, self._encoding)

    def _run(self, one: Slice) -> slice:
        """The place of a slice among the values of its chunk."""
        chunk = self._layout.chunks[one.chunk]
        ends = [0, *accumulate(part.size for part in chunk)]
        first = one.parts[0]
        place = next(n for n, part in enumerate(chunk) if part.name == first.name)
        start = ends[place] + first.start - chunk[place].start
        return slice(start, start + one.size)
