"""Means with partners: a rank's values become the mean of its own and of those of a few other ranks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from volary.comm.sums.route import Memory
from volary.comm.topology.links import Links
from volary.errors import SettingError
from volary.run.database.traffic import Traffic

if TYPE_CHECKING:
    from torch import Tensor

    from volary.comm.groups.group import Group
    from volary.comm.sums.route import Arrival, BufferShape
    from volary.comm.topology.links import Transfer

IN_FLIGHT = 2
FIRST_TAG = 2**24  # above those of routes and of frames
TAGS = 1024  # means that tags tell apart: more than are ever under way

Partners = Callable[[int], Sequence[int]]  # the ranks of a group from which a rank receives, now


class PartnerMeans:
    """See `volary.comm.sums.route.BufferSums`: buffers of `shapes`, of which partners' mean takes the place of a sum.

    partners: asked for each mean, of every rank of `group`. What a rank contributes stays as it is.

    Raises SettingError for values that are not in this machine's memory.
    """

    in_flight = IN_FLIGHT

    def __init__(self, group: Group, shapes: Sequence[BufferShape], partners: Partners) -> None:
        if others := {str(shape.device) for shape in shapes if shape.device.type != "cpu"}:
            raise SettingError(
                f"means with partners are taken on the processor, and parameters are on {', '.join(sorted(others))}; "
                "accepted: train.device=cpu, or a consistency that sums over all workers"
            )
        self._links, self._partners, self._count = Links(group), partners, 0
        self.memory = [
            Memory(*(torch.zeros(shape.numel, dtype=shape.dtype, device=shape.device) for _ in range(2)))
            for shape in shapes
        ]

    @property
    def traffic(self) -> tuple[Traffic, ...]:
        """Since the start, by codec and route."""
        sent, received = self._links.sent_bytes, self._links.received_bytes
        return (Traffic("none", "partners", sent, received, sent + received),)

    def sum_up(self, buffer: int, start: int, end: int) -> Arrival:
        """Begin to take the mean of the values from `start` to `end`: sent and received at once."""
        links, memory, tag = self._links, self.memory[buffer], FIRST_TAG + self._count % TAGS
        self._count += 1
        own, mean = memory.contribution[start:end], memory.agreed[start:end]
        sources = sorted({*self._partners(links.rank)} - {links.rank})
        targets = [rank for rank in range(links.size) if rank != links.rank and links.rank in self._partners(rank)]
        theirs = [torch.empty_like(own) for _ in sources]
        transfers = [links.receive(values, rank, tag) for rank, values in zip(sources, theirs, strict=True)]
        transfers += [links.send(own, rank, tag) for rank in targets]
        return _Underway(own, theirs, mean, transfers)


@dataclass
class _Underway:
    """The mean of `own` and `theirs`, (numel,) each, once the transfers are over."""

    own: Tensor
    theirs: list[Tensor]
    mean: Tensor
    transfers: list[Transfer]

    def wait(self) -> None:
        for transfer in self.transfers:
            transfer.wait()
        self.mean.copy_(self.own)
        for values in self.theirs:
            self.mean.add_(values)
        self.mean.div_(1 + len(self.theirs))
