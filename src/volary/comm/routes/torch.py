"""The flat route: one all-reduce of `torch.distributed` (gloo on CPU, NCCL on GPU)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from volary.comm.routes._base import RoutePlugin

if TYPE_CHECKING:
    from torch.distributed import Work

    from volary.comm.groups.group import Group
    from volary.comm.sums.route import Arrival, BufferShape, Route
    from volary.comm.topology.topology import Topology

IN_FLIGHT = 2  # the next fills the wire while the last of one is waited for


@dataclass(frozen=True, kw_only=True)
class TorchRoute(RoutePlugin):
    """Sums by the collective of the group's backend."""

    anywhere = True

    def build(self, group: Group, shapes: Sequence[BufferShape], topology: Topology) -> Route:
        """The route for buffers of `shapes` among the ranks of `group`."""
        return _Flat(group, shapes)


class _Flat:
    def __init__(self, group: Group, shapes: Sequence[BufferShape]) -> None:
        from volary.comm.sums.route import Memory

        self._group = group
        self.memory = [Memory.in_place(shape) for shape in shapes]
        self.in_flight = IN_FLIGHT
        # a ring sends each of its two phases' slices once: Patarasuk & Yuan 2009
        self._share = 2 * (group.size - 1) / group.size
        self.sent_bytes = self.received_bytes = 0

    def sum_up(self, buffer: int, start: int, end: int) -> Arrival:
        from torch import distributed

        from volary.comm.groups.peers import peers_needed

        values = self.memory[buffer].contribution[start:end]
        count = int(self._share * values.numel() * values.element_size())
        self.sent_bytes += count
        self.received_bytes += count
        with peers_needed():
            return _Underway(distributed.all_reduce(values, group=self._group.process_group, async_op=True))


class _Underway:
    def __init__(self, work: Work) -> None:
        self._work = work

    def wait(self) -> None:
        from volary.comm.groups.peers import peers_needed

        with peers_needed():
            self._work.wait()


ROUTE = TorchRoute
