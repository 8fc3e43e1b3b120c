"""The ranks that hold the parts of the same layers, and what passes between them in forward and backward."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from itertools import pairwise
from typing import TYPE_CHECKING, Protocol

import torch
from torch import Tensor, distributed

from volary.comm.groups.peers import peers_needed
from volary.run.database.traffic import Traffic

if TYPE_CHECKING:
    from volary.comm.groups.group import Group


# the types of 16 bits in which values of layers may pass from rank to rank, by the name that settings give them
NARROW: Mapping[str, torch.dtype] = {"bf16": torch.bfloat16, "fp16": torch.float16}
WIDE = (torch.float32, torch.float64)  # which pass in those; whatever else is as short, or is no number to be rounded


class PartGroup(Protocol):
    """The ranks that hold the parts of one replica together."""

    group: Group

    @property
    def traffic(self) -> tuple[Traffic, ...]:
        """The bytes that this rank has sent to the others, and received from them, by codec and route."""
        ...


class LayerGroup:
    """Collectives of one group for values of layers; all its ranks call them in the same order, from one thread.

    group: with connections of its own, since another thread may be using those of others. sent_bytes, received_bytes:
    by this rank since the start. waiting: the context of a wait for other ranks. narrow: the type of 16 bits, one of
    `NARROW`, in which sums and what is gathered travel; empty: as they are.
    """

    def __init__(self, group: Group, narrow: str = "") -> None:
        self.group, self.narrow = group, narrow
        self.rank, self.size = group.rank, group.size
        self.sent_bytes = self.received_bytes = self._saved_bytes = 0
        self.waiting: Callable[[], AbstractContextManager[None]] = nullcontext

    @property
    def traffic(self) -> tuple[Traffic, ...]:
        """The bytes so far, as they are counted by codec and route."""
        plain_bytes = self.sent_bytes + self.received_bytes + self._saved_bytes
        codec = self.narrow or "none"
        return (Traffic(codec, "between parts", self.sent_bytes, self.received_bytes, plain_bytes),)

    def added_up(self, values: Tensor) -> Tensor:
        """The sum of all ranks' values, of the same shape on each, as a new tensor; the same bits on all ranks."""
        if self.narrow and values.dtype in WIDE:
            return self._added_up_narrow(values)
        total = values.to(values.dtype if values.dtype in WIDE else torch.float32, copy=True).contiguous()
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
        if self.narrow and values.dtype in WIDE:
            return self._gathered_narrow(values.to(NARROW[self.narrow]), dim, sizes, values.dtype)
        shape = list(values.shape)
        parts = [values.new_empty([*shape[:dim], size, *shape[dim + 1 :]]) for size in sizes]
        return torch.cat(self.exchanged([values] * self.size, parts), dim)

    def own_sum(self, values: Tensor, sizes: Sequence[int]) -> Tensor:
        """This rank's part, (..., own), of the sum of all ranks' values, (..., all). sizes: of the parts."""
        narrows = self.narrow and values.dtype in WIDE
        given = (values.to(NARROW[self.narrow]) if narrows else values).split(list(sizes), -1)
        into = [torch.empty_like(given[self.rank], memory_format=torch.contiguous_format) for _ in sizes]
        parts = self._exchanged_narrow(given, into, values.dtype) if narrows else self.exchanged(given, into)
        return sum((part.to(values.dtype) for part in parts[1:]), parts[0].to(values.dtype))

    def _added_up_narrow(self, values: Tensor) -> Tensor:
        """Each rank adds up a part of them, which it gets rounded, and gives the sums, rounded once more, to all."""
        bounds = [values.numel() * rank // self.size for rank in range(self.size + 1)]
        sizes = [end - start for start, end in pairwise(bounds)]
        own = self.own_sum(values.reshape(-1), sizes)
        whole = self._gathered_narrow(own.to(NARROW[self.narrow]), 0, sizes, values.dtype)
        return whole.view(values.shape)

    def _gathered_narrow(self, values: Tensor, dim: int, sizes: Sequence[int], kind: torch.dtype) -> Tensor:
        shape = list(values.shape)
        parts = [values.new_empty([*shape[:dim], size, *shape[dim + 1 :]]) for size in sizes]
        return torch.cat(self._exchanged_narrow([values] * self.size, parts, kind), dim).to(kind)

    def _exchanged_narrow(self, given: Sequence[Tensor], into: Sequence[Tensor], kind: torch.dtype) -> list[Tensor]:
        """As `exchanged`; kind: what they were before."""
        before = self.sent_bytes + self.received_bytes
        found = self.exchanged(given, into)
        narrow_bytes = self.sent_bytes + self.received_bytes - before
        self._saved_bytes += narrow_bytes * (kind.itemsize - into[0].element_size()) // into[0].element_size()
        return found

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
