"""Copies of what each rank of a sharded run keeps alone: with another rank, of each step, beside the next one."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch

from volary.comm.groups.blocking import from_rank, gather_plain
from volary.comm.memory.shared_memory import machine
from volary.comm.topology.links import Links
from volary.errors import PeerLost
from volary.train.recovery.packed import packed, unpacked
from volary.train.recovery.rank_share import RankShare

if TYPE_CHECKING:
    from torch import Tensor

    from volary.comm.groups.group import Group
    from volary.comm.topology.links import Transfer
    from volary.partition._base import Part
    from volary.train.recovery.kept_state import KeptState
    from volary.train.state.stateful import Stateful

TAG = 2**30  # above those of sums, frames and means


class PostedShares:
    """This rank's share, and the copies of others' that it holds, of the two newest points. A collective call.

    links: of `group`. share: of this rank. Each rank's copy is with the one that follows after so many ranks that it is
    on another machine, if that can be.
    """

    def __init__(self, group: Group, links: Links, share: RankShare) -> None:
        self._group, self._links, self._share = group, links, share
        self._distance = distance(group.bulletin.share("machine of shares", machine()))
        self._own, self._theirs = [_memory(), _memory()], [_memory(), _memory()]  # of the newest point, and before
        self._newest: KeptState | None = None
        self._leaving: list[Transfer] = []
        self._coming: list[_Coming] = []

    def take_over(self, kept: KeptState) -> None:
        """Take what this rank keeps from the shares of a group before. A collective call.

        That is the point before this group's first one, until all copies of that are there.
        """
        self._newest = kept if kept.shares else None
        self._share.take(self._of_all(kept))

    def post(self, kept: KeptState, leaving: Collection[int] = ()) -> None:
        """Keep the share of this rank in the point `kept`; begin to send it, and to receive those of others.

        leaving: ranks of the run that hold no copy, as they are about to leave it.
        """
        ranks, place = kept.members.ranks, self._group.rank
        gone = [one for one, rank in enumerate(ranks) if rank in leaving]
        holders = [holder(one, len(ranks), self._distance, gone) for one in range(len(ranks))]
        sent_before, free = self._own
        own = packed(self._share.state(), free if free.numel() >= sent_before.numel() else _memory(sent_before.numel()))
        self._own = [own, sent_before]
        before = None if self._newest is None else replace(self._newest, former=None)
        self._newest = replace(kept, shares={ranks[place]: own}, former=before)
        received_before, free = self._theirs if not gone else (_memory(), _memory())  # which is not from the same ranks
        self._coming = [
            _Coming(self._links, one, ranks[one], _memory() if gone else free, received_before.numel())
            for one, to in enumerate(holders)
            if to == place
        ]
        to, known = holders[place], 0 if gone else sent_before.numel()
        if to is not None:
            parts = (torch.tensor([own.numel()]), own[:known], own[known:])
            self._leaving = [self._links.send(one, to, TAG) for one in parts if one.numel()]

    def await_all(self) -> None:
        """Wait until the newest share of this rank has left, and those of others are here. Raises PeerLost."""
        while self._coming:
            self._take(self._coming.pop())
        while self._leaving:
            self._leaving.pop().wait()

    def kept(self) -> KeptState | None:
        """Return the newest point, with the one before it, once nothing exchanges any more; None: there is none."""
        while self._coming:
            with suppress(PeerLost):
                self._take(self._coming.pop())
        return self._newest

    def _of_all(self, kept: KeptState) -> Iterator[Any]:
        """Yield the shares of all ranks of the point `kept`, of which each rank here has some. A collective call."""
        holders: dict[int, tuple[int, int]] = {}
        own = [[rank, values.numel()] for rank, values in kept.shares.items()]
        for place, shares in enumerate(gather_plain(own, self._group)):
            holders |= {rank: (place, size) for rank, size in shares if rank not in holders}
        for rank, (place, size) in sorted(holders.items()):
            values = kept.shares[rank] if place == self._group.rank else _memory(size)
            if self._group.size > 1:
                from_rank(place, values, self._group)
            yield unpacked(values)

    def _take(self, coming: _Coming) -> None:
        values = coming.wait()
        assert self._newest is not None, "it was posted"
        self._newest.shares[coming.rank] = values
        self._theirs = [values, self._theirs[0]]


class _Coming:
    """The share of `rank` at its `place`: first its length comes, then as much as is `known`, then the rest.

    So one that is as long as the one before it comes into its place while nobody waits. memory: (bytes,), for it if
    there is room.
    """

    def __init__(self, links: Links, place: int, rank: int, memory: Tensor, known: int) -> None:
        self.rank, self._links, self._place = rank, links, place
        self._size = torch.zeros(1, dtype=torch.int64)
        self._memory = memory if memory.numel() >= known else _memory(known)
        wanted = (self._size, self._memory[:known])
        self._known, self._transfers = known, [links.receive(one, place, TAG) for one in wanted if one.numel()]

    def wait(self) -> Tensor:
        """Return its bytes, once they are here. Raises PeerLost. Called once."""
        for one in self._transfers:
            one.wait()
        size = int(self._size)
        if size > self._memory.numel():
            self._memory = torch.cat([self._memory[: self._known], _memory(size - self._known)])
        if size > self._known:
            self._links.receive(self._memory[self._known : size], self._place, TAG).wait()
        return self._memory[:size]


def posted_shares(group: Group, part: Part, update: Stateful) -> PostedShares:
    """Make what gives copies of this rank's share of `part` to another rank of `group`. A collective call."""
    return PostedShares(group, Links(group), RankShare(part.module, part.holdings, update))


def distance(machines: Sequence[str]) -> int:
    """After how many ranks the copy of a rank's share is, where most of them are on another machine. By rank."""
    ranks = len(machines)

    def apart(distance: int) -> int:
        return sum(machines[rank] != machines[(rank + distance) % ranks] for rank in range(ranks))

    return max(range(1, max(2, ranks)), key=apart)


def holder(place: int, ranks: int, distance: int, gone: Collection[int]) -> int | None:
    """The place of the rank that holds the copy of what the one at `place` of so many has; none of those that are gone.

    None: there is no other.
    """
    after = ((place + distance + step) % ranks for step in range(ranks))
    return next((one for one in after if one != place and one not in gone), None)


def _memory(size: int = 0) -> Tensor:
    return torch.empty(size, dtype=torch.uint8)
