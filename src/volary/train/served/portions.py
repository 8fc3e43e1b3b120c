"""Reads the portions of a session's data that the roster gives out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from volary.data.batching.batch import Batch
from volary.data.indexed import IndexedReader, whole
from volary.data.portions import ReadPortion
from volary.train.recording.reads import Reads

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from volary.data.indexed import BatchRange
    from volary.data.samples import Samples
    from volary.train.recording.recorder import Recorder


@dataclass(frozen=True, eq=False)
class SessionPart:
    """See `volary.data.portions.PortionPart`. Of a session's data."""

    inputs: Tensor
    targets: Tensor
    counted: float

    @property
    def count(self) -> int:
        return self.inputs.shape[0]


class SessionPortions:
    """See `volary.data.portions.PortionReader`. seed: of the order of samples.

    parts: that a portion is computed in, to save memory. counted: what of targets (n, ...) counts, in samples.
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
        self._data = IndexedReader(samples, batch_size, seed=seed, shuffle=shuffle)
        self._batch_size, self._device, self._parts, self._counted = batch_size, device, parts, counted
        self._epoch = -1
        self._reads = Reads(samples, recorder)

    def expect(self, portions: Sequence[BatchRange]) -> None:
        """Announce the samples of these portions to storage, as many as it has room for."""
        self._data.look_ahead(portions, whole)

    def read(self, portion: BatchRange) -> ReadPortion:
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
