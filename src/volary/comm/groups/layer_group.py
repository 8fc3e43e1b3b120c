"""The ranks that hold the parts of the same layers, and what passes between them in forward and backward."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Protocol

import torch
from torch import Tensor, distributed

from volary.comm.groups.peers import peers_needed
from volary.run.database.traffic import Traffic

if TYPE_CHECKING:
    from volary.comm.groups.group import Group

_EXACT = (torch.float32, torch.float64)  # what sums are made in: others become float32 for that


class PartGroup(Protocol):
    """The ranks that hold the parts of one replica together. sent_bytes, received_bytes: between them, by this rank."""

    group: Group
    sent_bytes: int
    received_bytes: int

    @property
    def traffic(self) -> tuple[Traffic, ...]:
        """The bytes so far, as they are counted by codec and route."""
        ...


class LayerGroup:
    """Collectives of one group for values of layers; all its ranks call them in the same order, from one thread.

    group: with connections of its own, since another thread may be using those of others. sent_bytes, received_bytes:
    by this rank since the start. waiting: the context of a wait for other ranks.
    """

    def __init__(self, group: Group) -> None:
        self.group = group
        self.rank, self.size = group.rank, group.size
        self.sent_bytes = self.received_bytes = 0
        self.waiting: Callable[[], AbstractContextManager[None]] = nullcontext

    @property
    def traffic(self) -> tuple[Traffic, ...]:
        """The bytes so far, as they are counted by codec and route."""
        plain_bytes = self.sent_bytes + self.received_bytes
        return (Traffic("none", "between parts", self.sent_bytes, self.received_bytes, plain_bytes),)

    def added_up(self, values: Tensor) -> Tensor:
        """The sum of all ranks' values, of the same shape on each, as a new tensor; the same bits on all ranks."""
        total = values.to(values.dtype if values.dtype in _EXACT else torch.float32, copy=True).contiguous()
        with self.waiting(), peers_needed():
            distributed.all_reduce(total, group=self.group.process_group)
        # a ring sends each of its two phases' slices once: Patarasuk & Yuan 2009
        count = 2 * (self.size - 1) * total.numel() * total.element_size() // self.size
        self._count(count, count)
        return total.to(values.dtype)

    def gathered(self, values: Tensor, dim: int, sizes: Sequence[int]) -> Tensor:
        """All ranks' values (..., size, ...), one after the other along `dim`: (..., sum of sizes, ...).

        sizes: of each rank's along it, which may differ.
        """
        shape = list(values.shape)
        parts = [values.new_empty([*shape[:dim], size, *shape[dim + 1 :]]) for size in sizes]
        return torch.cat(self.exchanged([values] * self.size, parts), dim)

    def exchanged(self, given: Sequence[Tensor], into: Sequence[Tensor]) -> list[Tensor]:
        """Give each rank its tensor of `given`, (...), and take theirs; `into` are of the shapes of what they give."""
        return self.exchanging(given, into)()

    def exchanging(self, given: Sequence[Tensor], into: Sequence[Tensor]) -> Callable[[], list[Tensor]]:
        """Begin an `exchanged`; call the returned function to wait for it: then it gives what all ranks gave, (...).

        All pairs of ranks send at the same time; nothing is sent of a tensor without values.
        """
        taken, sent, waits = list(into), list[Tensor](), []
        taken[self.rank] = given[self.rank]
        with peers_needed():
            for other in (peer for peer in range(self.size) if peer != self.rank):
                own, theirs = given[other].contiguous(), into[other]
                if theirs.numel():
                    waits.append(distributed.irecv(theirs, group=self.group.process_group, group_src=other))
                sent.append(own)  # until it has left
                if own.numel():
                    waits.append(distributed.isend(own, group=self.group.process_group, group_dst=other))
                self._count(own.numel() * own.element_size(), theirs.numel() * theirs.element_size())

        def wait() -> list[Tensor]:
            with self.waiting(), peers_needed():
                for one in waits:
                    assert one is not None, "this rank is in its group"
                    one.wait()
            sent.clear()
            return taken

        return wait

    def _count(self, sent: int, received: int) -> None:
        self.sent_bytes, self.received_bytes = self.sent_bytes + sent, self.received_bytes + received
