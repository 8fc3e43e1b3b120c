"""The flat route: one all-reduce of `torch.distributed` (gloo on CPU, NCCL on GPU)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch.distributed import Work

    from volary.comm.routes._base import Arrival, Bulletin, Route, Shape
    from volary.comm.topology import Topology

IN_FLIGHT = 2  # the next fills the wire while the last of one is waited for


@dataclass(frozen=True, kw_only=True)
class Torch:
    """Sums by the collective of the default group's backend."""

    def build(self, bulletin: Bulletin, shapes: Sequence[Shape], topology: Topology) -> Route:
        """The route for buffers of `shapes` among the ranks of the default group, which must have been joined."""
        return _Flat(bulletin.world_size, shapes)


class _Flat:
    def __init__(self, world_size: int, shapes: Sequence[Shape]) -> None:
        import torch

        from volary.comm.routes._base import Memory

        flat = [torch.zeros(shape.numel, dtype=shape.dtype, device=shape.device) for shape in shapes]
        self.memory = [Memory(one, one) for one in flat]
        self.in_flight = IN_FLIGHT
        # a ring sends each of its two phases' slices once: Patarasuk & Yuan 2009
        self._share = 2 * (world_size - 1) / world_size
        self.sent_bytes = self.received_bytes = 0

    def sum_up(self, buffer: int, start: int, end: int) -> Arrival:
        from torch import distributed

        from volary.comm.peers import peers_needed

        values = self.memory[buffer].contribution[start:end]
        count = int(self._share * values.numel() * values.element_size())
        self.sent_bytes += count
        self.received_bytes += count
        with peers_needed():
            return _Underway(distributed.all_reduce(values, async_op=True))


class _Underway:
    def __init__(self, work: Work) -> None:
        self._work = work

    def wait(self) -> None:
        from volary.comm.peers import peers_needed

        with peers_needed():
            self._work.wait()


ROUTE = Torch
