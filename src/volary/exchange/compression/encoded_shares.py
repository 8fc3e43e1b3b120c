"""The lossy reduce-scatter: contributions travel encoded to the owner of a value, who adds up what they say."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from volary.comm.sums.segments import SharedBuffer
from volary.exchange.compression.codec_links import CodecLinks
from volary.exchange.compression.frames import FIRST_TAG, TAGS, FrameMemory, Owners, part_of
from volary.exchange.compression.sections import cut_as_owned
from volary.exchange.compression.workspace import Workspace, try_out
from volary.server.protocol.sections import Section, frames_bytes

if TYPE_CHECKING:
    from volary.comm.groups.group import Group
    from volary.comm.topology.links import Links, Transfer
    from volary.comm.topology.mesh_links import MeshLinks
    from volary.exchange.compression.error_feedback import ErrorFeedback
    from volary.exchange.gradients.owned import OwnedValues
    from volary.exchange.gradients.plan import BucketPlan
    from volary.run.database.traffic import Traffic

IN_FLIGHT = 3


class EncodedShares:
    """See `volary.comm.sums.route.BufferSums`: sums of buckets with `plans` come to their owners. A collective call.

    Nothing is encoded that stays here, and nothing comes back. errors, left_out: as of `EncodedSums`.
    """

    in_flight = IN_FLIGHT

    def __init__(
        self,
        group: Group,
        plans: Sequence[BucketPlan],
        owned: OwnedValues,
        errors: ErrorFeedback,
        left_out: Callable[[str], None] | None = None,
    ) -> None:
        self.memory = [owned.memory(plan) for plan in plans]
        self._plans, self._owned = plans, owned
        self._owners = Owners(range(group.size), group.rank)
        self._codecs = [errors.of(plan).codec for plan in plans]
        names = (codec.name for codec in self._codecs)
        self._links = CodecLinks(group, plans[0].device, names, "to owners")
        self._benches = [
            Workspace(plan, errors.of(plan), SharedBuffer([one.contribution], one.agreed), [group.rank], left_out)
            for plan, one in zip(plans, self.memory, strict=True)
        ]
        for one in dict.fromkeys(self._codecs):
            try_out(one, plans[0].device)
        self._desks = [FrameMemory(plans[0].device) for _ in range(IN_FLIGHT)]
        self._cuts: dict[tuple[int, int, int], list[list[Section]]] = {}
        self._count = 0

    @property
    def traffic(self) -> tuple[Traffic, ...]:
        return self._links.traffic

    def sum_up(self, buffer: int, start: int, end: int) -> _Underway:
        """Send each owner the frames of its values between `start` and `end`."""
        self._count += 1
        codec, span = self._codecs[buffer], (buffer, start, end)
        if span not in self._cuts:
            division = self._owned.division(self._plans[buffer], start, end)
            self._cuts[span] = cut_as_owned(self._plans[buffer], codec, start, division)
        slices, place = self._cuts[span], self._owners.place
        values = [sum(section.end - section.start for section in one) for one in slices]
        others = sum(values) - values[place] + (len(slices) - 1) * values[place]
        links = self._links.begin(codec.name, others * self.memory[buffer].contribution.element_size())
        desk = self._desks[self._count % IN_FLIGHT]
        return _Underway(links, self._owners, slices, self._benches[buffer], desk, self._count)


class _Underway:
    """One sum: frames are sent at once, and those that come are added up when it is waited for."""

    def __init__(
        self,
        links: Links | MeshLinks,
        owners: Owners,
        slices: Sequence[Sequence[Section]],
        bench: Workspace,
        desk: FrameMemory,
        number: int,
    ) -> None:
        self._own, self._bench, tag = slices[owners.place], bench, FIRST_TAG + 2 * (number % TAGS)
        sizes = [frames_bytes(one) for one in slices]
        pages = desk.pages(sizes + [sizes[owners.place]] * len(owners.others))
        self._arrived = dict(zip(sorted(owners.others), pages[len(slices) :], strict=True))
        self._transfers: list[Transfer] = []
        for place, page in self._arrived.items() if self._own else ():
            self._transfers.append(links.receive(page, owners.ranks[place], tag))
        for place in owners.others:
            for section in slices[place]:
                bench.contribute(section, part_of(pages[place], section))
            if slices[place]:
                self._transfers.append(links.send(pages[place], owners.ranks[place], tag))

    def wait(self) -> None:
        """Return when the own values are the sums. Raises PeerLost if a peer went away."""
        for transfer in self._transfers:
            transfer.wait()
        for section in self._own:
            self._bench.add_up(section, [part_of(page, section) for page in self._arrived.values()])
