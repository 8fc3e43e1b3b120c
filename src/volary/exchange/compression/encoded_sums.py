"""The lossy all-reduce: contributions travel encoded to the owner of their slice, and its sum, encoded, to everybody.

Owners are the ranks, or the nodes where ranks of a node add in shared memory first: then the range is cut into lanes,
one for each rank of the smallest node, whose frames go between the ranks of the same lane. A link carries 2 (n - 1) / n
of the frames of all values for n owners. Every rank decodes the same frame of a sum, so all agree bit for bit.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING

from volary.comm.groups.group import LAST_RESORT_S
from volary.comm.sums.node import NodeBuffers
from volary.comm.sums.route import Memory
from volary.comm.sums.segments import SharedBuffer
from volary.comm.sums.sums import needs_cpu
from volary.exchange.compression.codec_links import CodecLinks
from volary.exchange.compression.frames import FrameMemory, FrameSums, Owners
from volary.exchange.compression.sections import cut
from volary.exchange.compression.workspace import Workspace, try_out

if TYPE_CHECKING:
    from volary.comm.groups.group import Bulletin, Group
    from volary.comm.sums.route import BufferShape
    from volary.comm.topology.topology import Topology
    from volary.exchange.compression.error_feedback import ErrorFeedback
    from volary.exchange.gradients.plan import BucketPlan
    from volary.run.database.traffic import Traffic
    from volary.server.protocol.sections import Section

IN_FLIGHT = 3  # while one is added up and one is on its way back, a third is on its way out


class EncodedSums:
    """See `volary.comm.sums.route.BufferSums`: sums of buckets with `plans`, which travel as frames. A collective call.

    group: nothing else meets under the topics of its bulletin. topology: ranks of its nodes add in shared memory first;
    None: all send for themselves. errors: of these buckets, among others. left_out: told, in a sentence and once a
    parameter, of values that are not finite and count as zero; None: NotFinite is raised instead. Raises OSError, on
    all ranks of a node, if there is not so much shared memory; SettingError if values that ranks shall share are not in
    their memory.
    """

    in_flight = IN_FLIGHT

    def __init__(
        self,
        group: Group,
        plans: Sequence[BucketPlan],
        topology: Topology | None,
        errors: ErrorFeedback,
        left_out: Callable[[str], None] | None = None,
    ) -> None:
        nodes = topology.nodes if topology is not None else [(rank,) for rank in range(group.size)]
        place = next(place for place, ranks in enumerate(nodes) if group.rank in ranks)
        self._ranks, self._lanes = nodes[place], min(len(ranks) for ranks in nodes)
        self._lane = self._ranks.index(group.rank)
        shapes = [plan.shape for plan in plans]
        self._node = _met(group.bulletin, self._ranks, shapes) if len(self._ranks) > 1 else None
        self.memory = [Memory.in_place(shape) for shape in shapes] if self._node is None else self._node.memory
        has_lane = self._lane < self._lanes
        self._owners = Owners([node[self._lane] for node in nodes], place) if has_lane else Owners([group.rank], 0)
        self._plans, self._residuals = plans, [errors.of(plan) for plan in plans]
        names = (plan.representation.name for plan in plans)
        self._links = CodecLinks(group, shapes[0].device, names, "to owners and back")
        boards = (
            self._node.boards if self._node else [SharedBuffer([one.contribution], one.agreed) for one in self.memory]
        )
        self._benches = [
            Workspace(plan, residual, board, self._ranks, left_out)
            for plan, residual, board in zip(plans, self._residuals, boards, strict=True)
        ]
        for codec in {residual.codec for residual in self._residuals}:
            try_out(codec, shapes[0].device)
        self._desks = [FrameMemory(shapes[0].device) for _ in range(IN_FLIGHT)]
        self._cuts: dict[tuple[int, int, int], list[list[Section]]] = {}
        self._under_way: deque[_Underway] = deque()
        self._count = 0

    @property
    def traffic(self) -> tuple[Traffic, ...]:
        return self._links.traffic

    def sum_up(self, buffer: int, start: int, end: int) -> _Underway:
        """Begin to sum the values from `start` to `end`, or let them queue until all of the node have come to it."""
        slices = self._slices(buffer, start, end)
        self._count += 1
        desk, bench = self._desks[self._count % IN_FLIGHT], self._benches[buffer]
        codec = self._plans[buffer].representation.name
        links = self._links.begin(codec, self._as_they_are(buffer, slices))
        frames = FrameSums(links, self._owners, slices, bench, desk, self._count)
        arrival = _Underway(self, frames, self._node.written.arrive() if self._node else 0)
        self._under_way.append(arrival)
        for one in self._under_way:
            if self._node and not self._node.written.open(one.turn):
                break
            one.begin()
        return arrival

    def finish(self, arrival: _Underway) -> None:
        """Drive the oldest sum to its end, and the next one until it comes back: meanwhile a third may be encoded.

        Every rank does so in these stages, each of which waits only for earlier ones of others: nobody waits crosswise.
        Raises PeerLost if a peer went away.
        """
        assert arrival is self._under_way[0], "sums are waited for in the order in which they were begun"
        two = list(islice(self._under_way, 2))
        for one in two:
            if self._node:
                self._node.written.wait(one.turn)
            one.begin()
        for one in two:
            one.add_up()
        arrival.frames.finish()
        if self._node:
            self._node.done.wait(self._node.done.arrive())
        self._under_way.popleft()

    def _as_they_are(self, buffer: int, slices: Sequence[Sequence[Section]]) -> int:
        """Bytes of a sum's values, sent and received: those of others go out and come back, the own the other way."""
        others = self._owners.others
        sizes = [sum(section.end - section.start for section in one) for one in slices]
        values = sum(sizes[place] for place in others) + len(others) * sizes[self._owners.place]
        return 2 * values * self.memory[buffer].contribution.element_size()

    def _slices(self, buffer: int, start: int, end: int) -> list[list[Section]]:
        """The slices of this rank's lane, one for each owner; none where it has no lane."""
        span = buffer, start, end
        if span not in self._cuts:
            plan, owners = self._plans[buffer], len(self._owners.ranks)
            everything = cut(plan, self._residuals[buffer].codec, start, end, self._lanes * owners)
            self._cuts[span] = everything[self._lane * owners : (self._lane + 1) * owners] or [[]]
            self._hand_over(buffer, start, end)
        return self._cuts[span]

    def _hand_over(self, buffer: int, start: int, end: int) -> None:
        """The residuals that this rank has, from an earlier layout, of values that others of its node send go to them.

        Once: from now on only the rank that sends values has a residual of them.
        """
        if self._node is None:
            return
        mine = [section for one in self._cuts[buffer, start, end] for section in one if not section.exact]
        bounds = [start, *(bound for one in mine for bound in (one.start, one.end)), end]
        contribution, residual = self.memory[buffer].contribution, self._residuals[buffer]
        for low, high in zip(bounds[::2], bounds[1::2], strict=True):
            residual.hand_over(low, high, contribution[low:high])


@dataclass
class _Underway:
    """A sum, and the turn at which every rank of the node has come to it."""

    sums: EncodedSums
    frames: FrameSums
    turn: int
    stage: int = 0

    def begin(self) -> None:
        if self.stage == 0:
            self.stage = 1
            self.frames.begin()

    def add_up(self) -> None:
        if self.stage == 1:
            self.stage = 2
            self.frames.add_up()

    def wait(self) -> None:
        self.sums.finish(self)


def _met(bulletin: Bulletin, ranks: Sequence[int], shapes: Sequence[BufferShape]) -> NodeBuffers:
    needs_cpu("between nodes", shapes)
    return NodeBuffers(bulletin, ranks, shapes, LAST_RESORT_S)
