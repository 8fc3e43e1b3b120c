"""Reads the samples of the portions that the roster gives out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from volary.data.batching.batch import Batch
from volary.data.indexed import BatchRange, IndexedReader, whole
from volary.train.recording.reads import Reads

if TYPE_CHECKING:
    import torch
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
        """The targets of these samples."""
        ...

    @property
    def count(self) -> int:
        """The number of samples."""
        ...

    @property
    def counted(self) -> float:
        """What their loss is a mean over, in samples."""
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

    def expect(self, portions: Sequence[Portion]) -> None:
        """These are read next, in this order: what can be read and decoded beside training may begin."""
        ...

    def read(self, portion: Portion) -> ReadPortion:
        """Read the samples of a portion. Raises DataError."""
        ...

    def close(self) -> None:
        """Nothing more is read."""
        ...


@dataclass(frozen=True, eq=False)
class SessionPart:
    """See `PortionPart`. Of a session's data."""

    inputs: Tensor
    targets: Tensor
    counted: float

    @property
    def count(self) -> int:
        return self.inputs.shape[0]


class SessionPortions:
    """See `PortionReader`. seed: of the order of samples. parts: that a portion is computed in, to save memory.

    counted: what of targets (n, ...) counts, in samples.
    """

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
        counted: Callable[[Tensor], float],
    ) -> None:
        self.samples = len(samples)
        self._data = IndexedReader(samples, batch_size, seed=seed, shuffle=shuffle)
        self._batch_size, self._device, self._parts, self._counted = batch_size, device, parts, counted
        self._epoch = -1
        self._reads = Reads(samples, recorder)

    def expect(self, portions: Sequence[Portion]) -> None:
        """Announce the samples of these portions to storage, as many as it has room for."""
        self._data.look_ahead((BatchRange(one.epoch, one.start, one.end) for one in portions), whole)

    def read(self, portion: Portion) -> ReadPortion:
        epoch, start, total = portion.epoch, portion.start, self._batch_size
        if self._epoch != epoch:
            self._reads.end_epoch(self._epoch)
            self._epoch = epoch
        self._reads.tell_decoding()
        inputs, targets, _, _, lost = self._data.read(epoch, start, portion.end - start, whole)
        numbers = self._data.numbers(epoch, range(start, portion.end))
        batch = Batch(inputs, targets, total, epoch, start // total, False, lost, self._data.scale)
        # counted where the targets are read: on another device that would be waited for
        counts = [self._counted(part.targets) for part in batch.parts(self._parts)]
        there = batch.to(self._device).parts(self._parts)
        parts = [SessionPart(one.inputs, one.targets, many) for one, many in zip(there, counts, strict=True)]
        return ReadPortion(parts, lost, numbers)

    def close(self) -> None:
        self._reads.end_epoch(self._epoch)
