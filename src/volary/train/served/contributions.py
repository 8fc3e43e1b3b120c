"""What a worker of a served run pushes: its gradients as backward makes them, or what it has changed by itself."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import torch

from volary.exchange.gradients.buckets import Buckets, Gradients
from volary.exchange.gradients.factor_hooks import send_factors
from volary.exchange.gradients.row_blocks import write_as_usual, write_in_place

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from torch import nn

    from volary.comm.routes._base import Memory
    from volary.exchange.gradients.bucket import Chunk, ParameterSlot
    from volary.train.recording.recorder import Recorder
    from volary.train.served.layout import Layout
    from volary.train.update.update import Update


class Contributions(Protocol):
    """One after the other. lazy: parameters may come while they are read; otherwise all have come before `begin`."""

    lazy: bool

    @property
    def buckets(self) -> Buckets:
        """Where they lie."""
        ...

    def begin(self, samples: int) -> None:
        """The first parameter is about to be used. samples: that the run has learnt from."""
        ...

    def in_backward(self, *, last: bool) -> None:
        """A backward pass begins. last: of the contribution."""
        ...

    def update(self) -> None:
        """A batch is computed."""
        ...

    def complete(self, samples: int) -> Sequence[ParameterSlot]:
        """It is of so many samples: all of it leaves that has not. Returns parameters without a gradient."""
        ...

    def forget(self) -> None:
        """Nothing more of it leaves."""
        ...

    def close(self) -> None:
        """Let go of the network."""
        ...


class PushedGradients:
    """See `Contributions`. passes: backward passes of one. weight: of gradients. ready: given each chunk that is whole.

    What backward makes after `forget` is dropped, up to the next `begin`.
    """

    lazy = True

    def __init__(
        self,
        module: nn.Module,
        layout: Layout,
        memory: Sequence[Memory],
        ready: Callable[[Chunk], None],
        passes: int,
        weight: Callable[[], float] = lambda: 1.0,
    ) -> None:
        self._ready, self._leaving = ready, True
        self.buckets = Gradients(
            layout.plans,
            memory,
            [(name, parameter) for name, parameter in module.named_parameters() if not parameter.requires_grad],
            chunk_mb=layout.chunk_mb,
            private=False,
            passes=passes,
            ready=self._whole,
            weight=weight,
        )
        self._changed = [*write_in_place(module, self.buckets), *send_factors(module, self.buckets)]

    def begin(self, samples: int) -> None:
        """Gradients come with backward."""
        if not self._leaving:
            self.buckets.close()
            self._leaving = True

    def in_backward(self, *, last: bool) -> None:
        """In the last pass what a layer writes in place is its gradient."""
        self.buckets.in_backward = last

    def update(self) -> None:
        """Servers update."""

    def complete(self, samples: int) -> Sequence[ParameterSlot]:
        """What is still here leaves."""
        return self.buckets.close()

    def forget(self) -> None:
        """Nothing leaves any more."""
        self._leaving = False
        self.buckets.close()

    def close(self) -> None:
        """Let go of the network."""
        self.buckets.remove()
        write_as_usual(self._changed)

    def _whole(self, chunk: Chunk) -> None:
        if self._leaving:
            self._ready(chunk)


class PushedDifferences:
    """See `Contributions`. What `update` has changed since `begin`, times this worker's part of a batch.

    update: None where a loop of one's own updates the parameters.
    """

    lazy = False

    def __init__(
        self,
        batch_size: int,
        layout: Layout,
        memory: Sequence[Memory],
        ready: Callable[[Chunk], None],
        update: Update | None,
        recorder: Recorder,
    ) -> None:
        self._batch_size, self._ready, self._update, self._recorder = batch_size, ready, update, recorder
        self.buckets = Buckets(layout.plans, memory, chunk_mb=layout.chunk_mb, private=False)
        self._begun = {slot.name: torch.empty_like(slot.parameter) for slot in self.buckets.slots}
        self._step = 0  # of the schedule

    @torch.no_grad()
    def begin(self, samples: int) -> None:
        """From here on it is counted what this worker changes."""
        self._step = samples // self._batch_size
        for slot in self.buckets.slots:
            self._begun[slot.name].copy_(slot.parameter)

    def in_backward(self, *, last: bool) -> None:
        """Gradients stay here."""

    def update(self) -> None:
        """Update this worker's parameters with its own gradients."""
        assert self._update is not None
        self._recorder.enter("optimizer")
        self._update.prepare(self._step)
        self._update.apply()
        self._step += 1

    @torch.no_grad()
    def complete(self, samples: int) -> Sequence[ParameterSlot]:
        """All of it leaves."""
        weight = samples / self._batch_size

        def write(slot: ParameterSlot) -> None:
            torch.sub(slot.parameter, self._begun[slot.name], out=slot.view)
            slot.view.mul_(weight)

        self.buckets.fill(write)
        for chunk in self.buckets.chunks:
            self._ready(chunk)
        return []

    @torch.no_grad()
    def forget(self) -> None:
        """Parameters are as they came."""
        if self._update is not None:
            self._update.clear()
        for slot in self.buckets.slots:
            slot.parameter.copy_(self._begun[slot.name])

    def close(self) -> None:
        """Nothing of the network is held."""
