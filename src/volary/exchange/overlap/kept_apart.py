"""Gradients of parts of parameters that some of the workers keep: nobody else has them, or adds anything to them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from volary.comm.routes import ROOM as ROUTES
from volary.comm.sums.route import Memory
from volary.comm.topology.topology import Topology
from volary.exchange.representations._base import Representation
from volary.run.database.traffic import Traffic

if TYPE_CHECKING:
    from volary.comm.groups.group import Group
    from volary.comm.sums.route import Arrival, BufferShape
    from volary.exchange.gradients.plan import BucketPlan
    from volary.exchange.representations._base import CodedSums, Site


@dataclass(frozen=True)
class KeptApart(Representation):
    """groups: the ranks that keep the same parts; a rank alone has the sums already, and nothing of it travels.

    Workers may have parts of differing size: a parameter is updated at once, whatever its size.
    """

    groups: tuple[tuple[int, ...], ...]
    by_layer: ClassVar[bool] = True
    travels: ClassVar[bool] = False

    @classmethod
    def of_groups(cls, groups: Sequence[Sequence[int]]) -> KeptApart:
        """Each rank of the exchange is in one of the groups, which are of equal size."""
        return cls(tuple(map(tuple, groups)))

    def wire_bytes(self, values: int, value_bytes: int) -> int:
        return 0

    def sums(self, plans: Sequence[BucketPlan], site: Site) -> CodedSums:
        shapes = [plan.shape for plan in plans]
        if len(self.groups[0]) == 1:
            return NoSums(shapes)
        return SumsApart(shapes, site.group.divided(self.groups))

    def __str__(self) -> str:
        return "kept apart"


class NoSums:
    """See `volary.exchange.representations._base.CodedSums`. What this rank contributes is what is agreed."""

    in_flight = 1
    traffic: tuple[Traffic, ...] = ()

    def __init__(self, shapes: Sequence[BufferShape]) -> None:
        self.memory = [Memory.in_place(shape) for shape in shapes]

    def sum_up(self, buffer: int, start: int, end: int) -> Arrival:
        return _Here()


class SumsApart:
    """See `volary.exchange.representations._base.CodedSums`. `group` is of the ranks that keep the same parts."""

    def __init__(self, shapes: Sequence[BufferShape], group: Group) -> None:
        self._route = ROUTES.load("torch")().build(group, shapes, Topology.of(range(group.size)))
        self.memory, self.in_flight = self._route.memory, self._route.in_flight

    @property
    def traffic(self) -> tuple[Traffic, ...]:
        sent, received = self._route.sent_bytes, self._route.received_bytes
        return (Traffic("none", "torch", sent, received, sent + received),)

    def sum_up(self, buffer: int, start: int, end: int) -> Arrival:
        found: Arrival = self._route.sum_up(buffer, start, end)
        return found


class _Here:
    def wait(self) -> None:
        """Return at once: nothing is under way."""
