"""The order of any epoch, for workers that are handed out samples of epochs as they come: drawn by each for itself."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor


class ReplayedOrder:
    """The order that a loader's sampler draws in each epoch, if nothing else draws from its generator meanwhile.

    state: of that generator before the first epoch; None: as it is now. The generator itself stays as it is.
    """

    def __init__(self, loader: Any, state: bytes | None = None) -> None:
        self._loader = loader
        own = getattr(loader.sampler, "generator", None)
        self._generator: torch.Generator = torch.default_generator if own is None else own
        begins = self._generator.get_state() if state is None else torch.frombuffer(bytearray(state), dtype=torch.uint8)
        self._begins = [begins]  # each epoch
        self._newest: dict[int, Tensor] = {}

    @property
    def state(self) -> bytes:
        """The generator's state before the first epoch."""
        return bytes(self._begins[0].tolist())

    def epoch(self, number: int) -> Tensor:
        """The indices of an epoch (samples,), int64."""
        while len(self._begins) <= number:
            self._drawn(len(self._begins) - 1)
        if number not in self._newest:
            if len(self._newest) > 1:  # what is read now, and what is read ahead
                del self._newest[min(self._newest)]
            self._newest[number] = self._drawn(number)
        return self._newest[number]

    def _drawn(self, epoch: int) -> Tensor:
        before = self._generator.get_state()
        try:
            self._generator.set_state(self._begins[epoch])
            base = self._loader.generator
            if (torch.default_generator if base is None else base) is self._generator:
                torch.empty((), dtype=torch.int64).random_(generator=base)  # as a loader does first
            order = torch.tensor(list(self._loader.sampler))
            if epoch + 1 == len(self._begins):
                self._begins.append(self._generator.get_state())
        finally:
            self._generator.set_state(before)
        return order
