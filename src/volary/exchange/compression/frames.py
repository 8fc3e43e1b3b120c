"""One lossy sum under way: frames straight to the owner of each slice, and the frames of the sums back to all."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import TYPE_CHECKING

import torch

from volary.codec.kernels.batches import aligned
from volary.server.protocol.sections import Section, frames_bytes

if TYPE_CHECKING:
    from torch import Tensor

    from volary.comm.topology.links import Links, Transfer
    from volary.comm.topology.mesh_links import MeshLinks
    from volary.exchange.compression.workspace import Workspace

FIRST_TAG = 2**23  # above the tags of all routes
TAGS = 1024  # sums that tags tell apart: more than are ever under way


@dataclass(frozen=True)
class Owners:
    """The ranks that own slices, in their order, and this rank's place among them."""

    ranks: Sequence[int]
    place: int

    @property
    def others(self) -> list[int]:
        """All other places, from the next on: so nobody is sent to by all at once."""
        count = len(self.ranks)
        return [(self.place + step) % count for step in range(1, count)]


class FrameMemory:
    """Memory for the frames of one sum after the other, which grows to the most that one needs."""

    def __init__(self, device: torch.device) -> None:
        self._bytes = torch.empty(0, dtype=torch.uint8, device=device)

    def pages(self, sizes: Sequence[int]) -> list[Tensor]:
        """Memory for frames of these sizes in bytes, each aligned; its content is what the last user left there."""
        ends = list(accumulate(map(aligned, sizes)))
        if ends and self._bytes.numel() < ends[-1]:
            self._bytes = torch.empty(ends[-1], dtype=torch.uint8, device=self._bytes.device)
        return [self._bytes[end - aligned(size) :][:size] for end, size in zip(ends, sizes, strict=True)]


class FrameSums:
    """The sum of `slices`, one for each of `owners`. number: counts the sums, alike on all ranks.

    `begin`, `add_up` and `finish` follow each other; each waits only for what others do in the ones before. The frame
    that comes back for a slice is received where the one that was sent lies: it contains that one, which so has left.
    """

    def __init__(
        self,
        links: Links | MeshLinks,
        owners: Owners,
        slices: Sequence[Sequence[Section]],
        bench: Workspace,
        desk: FrameMemory,
        number: int,
    ) -> None:
        self._links, self._owners, self._slices, self._bench = links, owners, slices, bench
        self._tag = FIRST_TAG + 2 * (number % TAGS)
        own = slices[owners.place]
        sizes = [frames_bytes(one) for one in slices]
        pages = desk.pages(sizes + sizes[owners.place : owners.place + 1] * len(owners.others))
        self._frames, self._own = pages[: len(slices)], own
        self._arrived = dict(zip(sorted(owners.others), pages[len(slices) :], strict=True))
        self._coming: list[Transfer] = []
        self._returning: dict[int, Transfer] = {}
        self._left: list[Transfer] = []

    def begin(self) -> None:
        """Expect what will come; send each owner its slice."""
        for place, page in self._arrived.items():
            if self._own:
                self._coming.append(self._links.receive(page, self._owners.ranks[place], self._tag))
        mine = [place for place in self._owners.others if self._slices[place]]
        for place in mine:
            self._returning[place] = self._links.receive(self._frames[place], self._owners.ranks[place], self._tag + 1)
        for place in mine:
            for section, frame in self._sections(place):
                self._bench.contribute(section, frame)
            self._left.append(self._links.send(self._frames[place], self._owners.ranks[place], self._tag))

    def add_up(self) -> None:
        """Sum the own slice, in the order of the owners, and send the sum to all. Raises PeerLost."""
        for transfer in self._coming:
            transfer.wait()
        for section, frame in self._sections(self._owners.place):
            self._bench.agree(section, [part_of(page, section) for page in self._arrived.values()], frame)
        if self._own:
            for place in self._owners.others:
                page = self._frames[self._owners.place]
                self._left.append(self._links.send(page, self._owners.ranks[place], self._tag + 1))

    def finish(self) -> None:
        """Store the sums of all other slices. Raises PeerLost."""
        for place, transfer in self._returning.items():
            transfer.wait()
            for section, frame in self._sections(place):
                self._bench.store(section, frame)
        for transfer in self._left:
            transfer.wait()

    def _sections(self, place: int) -> Iterator[tuple[Section, Tensor]]:
        for section in self._slices[place]:
            yield section, part_of(self._frames[place], section)


def part_of(page: Tensor, section: Section) -> Tensor:
    """The frame of a section, (bytes,), among those of its slice."""
    return page[section.offset : section.offset + section.frame_bytes]
