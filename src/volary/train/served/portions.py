"""Reads the samples of the portions that the roster gives out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import torch

from volary.data.batch import Batch
from volary.data.order import Order, order_of
from volary.data.skipping import Skipping
from volary.data.stored import fetch
from volary.train.recording.reads import Reads

if TYPE_CHECKING:
    from torch import Tensor

    from volary.data.samples import Samples
    from volary.server.protocol.messages import Portion
    from volary.train.recording.recorder import Recorder


class PortionPart(Protocol):
    """What is computed at once: inputs and targets of `count` samples."""

    @property
    def inputs(self) -> Any:
        """(count, ...), or whatever a loop of one's own takes."""
        ...

    @property
    def targets(self) -> Any:
        """See above."""
        ...

    @property
    def count(self) -> int:
        """Samples in it."""
        ...


@dataclass(frozen=True, eq=False)
class ReadPortion:
    """parts: of a portion, in order. lost: samples that could not be read. numbers: in the data, of the others."""

    parts: Sequence[PortionPart]
    lost: int
    numbers: Tensor

    def number(self, first: int, place: int) -> int:
        """The number in the data of a sample of the part that begins at the portion's sample `first`."""
        return int(self.numbers[first + place])


class PortionReader(Protocol):
    """Reads portions. samples: of an epoch."""

    samples: int

    def read(self, portion: Portion) -> ReadPortion:
        """Its samples. Raises DataError."""
        ...

    def close(self) -> None:
        """There are no more."""
        ...


class SessionPortions:
    """See `PortionReader`. seed: of the order of samples. parts: that a portion is computed in, to save memory."""

    def __init__(
        self,
        samples: Samples,
        batch_size: int,
        device: torch.device,
        recorder: Recorder,
        *,
        seed: int,
        shuffle: bool,
        parts: int,
    ) -> None:
        self.samples = len(samples)
        self._data, self._batch_size, self._device = samples, batch_size, device
        self._seed, self._shuffle, self._parts = seed, shuffle, parts
        self._order: tuple[int, Order] = (-1, torch.empty(0))
        self._reads = Reads(samples, recorder)

    def read(self, portion: Portion) -> ReadPortion:
        """Without those that cannot be read."""
        if self._order[0] != portion.epoch:
            self._reads.end_epoch(self._order[0])
            order = order_of(self._data, self._seed, portion.epoch, self._shuffle, self._batch_size)
            self._order = portion.epoch, order
        wanted = self._order[1][portion.start : portion.end]
        inputs, targets = fetch(self._data, wanted, portion.epoch)
        lost, total = len(wanted) - len(inputs), self._batch_size
        numbers = self._data.readable(wanted) if isinstance(self._data, Skipping) else wanted
        batch = Batch(inputs, targets, total, portion.epoch, portion.start // total, False, lost)
        return ReadPortion(list(batch.to(self._device).parts(self._parts)), lost, numbers)

    def close(self) -> None:
        """The last epoch is over."""
        self._reads.end_epoch(self._order[0])
