"""A worker's contributions: gradients as backward makes them, or parameters that it updated, their changes or pulls."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

import torch

from volary.exchange.gradients.buckets import Buckets, Gradients
from volary.exchange.gradients.factor_hooks import send_factors
from volary.exchange.gradients.row_blocks import write_as_usual, write_in_place

if TYPE_CHECKING:
    from torch import Tensor, nn

    from volary.comm.sums.route import Memory
    from volary.exchange.gradients.bucket import Chunk, ParameterSlot
    from volary.exchange.gradients.plan import BucketPlan


class Contributions(Protocol):
    """Contributions, one by one, in the memory of `buckets`. lazy: parameters may come while they are read; else all
    come before `begin`.
    """

    buckets: Buckets
    lazy: bool = False

    def begin(self) -> None:
        """The first parameter is about to be used."""
        return

    def in_backward(self, *, last: bool) -> None:
        """A backward pass begins. last: of the contribution."""
        return

    def updated(self) -> None:
        """This worker has updated its own parameters."""
        return

    def complete(self, share: float) -> Sequence[ParameterSlot]:
        """Let leave all of it that has not. share: of an update's samples. Returns parameters without a gradient."""
        ...

    def forget(self) -> None:
        """Let nothing more of the contribution leave."""
        return

    def close(self) -> None:
        """Let go of the network, if something of it is held."""
        return


class PushedGradients(Contributions):
    """See `Contributions`. in_place: layers of `module` may be made to write where buckets lie.

    What backward makes after `forget` is dropped, up to the next `begin`.
    """

    buckets: Gradients
    lazy = True

    def __init__(self, module: nn.Module, buckets: Gradients, *, in_place: bool = True) -> None:
        self._ready, self.buckets = buckets.ready, buckets
        written = write_in_place(module, buckets) if in_place else ()
        self._changed = [*written, *send_factors(module, buckets)]

    def begin(self) -> None:
        if self.buckets.ready is not self._ready:
            self.buckets.forget()
            self.buckets.ready = self._ready

    def in_backward(self, *, last: bool) -> None:
        """Begin a backward pass: in the last one, what a layer writes in place is its gradient."""
        self.buckets.in_backward = last

    def complete(self, share: float = 1.0) -> Sequence[ParameterSlot]:
        """Let the rest leave; gradients have their share already."""
        return self.buckets.close()

    def forget(self) -> None:
        self.buckets.ready = _drop
        self.buckets.forget()

    def close(self) -> None:
        self.buckets.remove()
        write_as_usual(self._changed)


def _drop(chunk: Chunk) -> None:
    """Ignore a chunk of a forgotten contribution."""


class PushedDifferences(Contributions):
    """See `Contributions`. What has changed of parameters since `since`, which has a copy of each by its name."""

    def __init__(
        self,
        plans: Sequence[BucketPlan],
        memory: Sequence[Memory],
        ready: Callable[[Chunk], None],
        *,
        chunk_mb: float,
    ) -> None:
        self._ready = ready
        self.buckets = Buckets(plans, memory, chunk_mb=chunk_mb, private=False)
        self.since = {slot.name: torch.empty_like(slot.parameter) for slot in self.buckets.slots}

    @torch.no_grad()
    def begin(self) -> None:
        """Count what this worker changes from here on."""
        for slot in self.buckets.slots:
            self.since[slot.name].copy_(slot.parameter)

    @torch.no_grad()
    def complete(self, share: float) -> Sequence[ParameterSlot]:
        """Let all of it leave, times its share: the sum over all workers is the mean of what they have changed."""

        def write(slot: ParameterSlot) -> None:
            torch.sub(slot.parameter, self.since[slot.name], out=slot.view)
            slot.view.mul_(share)

        self.buckets.fill(write)
        for chunk in self.buckets.chunks:
            self._ready(chunk)
        return []

    @torch.no_grad()
    def forget(self) -> None:
        for slot in self.buckets.slots:
            slot.parameter.copy_(self.since[slot.name])


class PushedPulls(Contributions):
    """See `Contributions`. A part of the distance of this worker's `own` parameters, by name, to those of the plans.

    It is of where both are as the contribution begins; the worker goes back by as much after its next update.
    """

    def __init__(
        self,
        plans: Sequence[BucketPlan],
        memory: Sequence[Memory],
        ready: Callable[[Chunk], None],
        *,
        chunk_mb: float,
        own: Mapping[str, nn.Parameter],
        part: float,
    ) -> None:
        self._ready, self.own, self._part = ready, own, part
        self.buckets = Buckets(plans, memory, chunk_mb=chunk_mb, private=False)
        self._pull: dict[str, Tensor] = {}
        self._followed = True  # the worker has gone back by it

    @torch.no_grad()
    def begin(self) -> None:
        """Pull from where this worker is."""
        slots, self._followed = self.buckets.slots, False
        self._pull = {slot.name: (self.own[slot.name] - slot.parameter).mul_(self._part) for slot in slots}

        def write(slot: ParameterSlot) -> None:
            slot.view.copy_(self._pull[slot.name])

        self.buckets.fill(write)

    def leave(self) -> None:
        """Let all of it leave."""
        for chunk in self.buckets.chunks:
            self._ready(chunk)

    @torch.no_grad()
    def updated(self) -> None:
        """Let the centre pull this worker, too."""
        if not self._followed:
            for name, pull in self._pull.items():
                self.own[name].sub_(pull)
            self._followed = True

    def complete(self, share: float = 1.0) -> Sequence[ParameterSlot]:
        """Let all of it leave, whatever this worker's share of the samples."""
        self.updated()
        self.leave()
        return []

    @torch.no_grad()
    def forget(self) -> None:
        """The centre does not move: let the worker be where it would be without the pull."""
        for name, pull in self._pull.items() if self._followed else ():
            self.own[name].add_(pull)
        self._pull, self._followed = {}, True


def _as_it_is(slot: ParameterSlot) -> None:
    """Write a parameter to where it leaves."""
    slot.view.copy_(slot.parameter)


class PushedParameters(Contributions):
    """See `Contributions`. This worker's parameters as they are when they leave, or what `write` makes of them."""

    def __init__(
        self,
        plans: Sequence[BucketPlan],
        memory: Sequence[Memory],
        ready: Callable[[Chunk], None],
        *,
        chunk_mb: float,
    ) -> None:
        self._ready = ready
        self.write: Callable[[ParameterSlot], None] = _as_it_is
        self.buckets = Buckets(plans, memory, chunk_mb=chunk_mb, private=False)

    @torch.no_grad()
    def complete(self, share: float = 1.0) -> Sequence[ParameterSlot]:
        """Let all parameters leave, whatever this worker's share of the samples."""
        self.buckets.fill(self.write)
        for chunk in self.buckets.chunks:
            self._ready(chunk)
        return []
