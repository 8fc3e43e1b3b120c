"""Reads the portions that the roster hands out; here those of a session's data."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple, Protocol

from volary.data.batching.batch import Batch
from volary.train.data.micro_batches import micro_batches

if TYPE_CHECKING:
    from volary.data.reader import SamplePlaces
    from volary.data.sample_reader import SampleReader
    from volary.train.coordinator import MicroBatch
    from volary.train.model import TrainedNetwork
    from volary.train.recording.reads import Reads


class ReadPortion(NamedTuple):
    """parts: of a portion, in order, with weights of 0. lost: samples that could not be read."""

    parts: Sequence[MicroBatch]
    lost: int


class PortionReader(Protocol):
    """A reader, whose samples come in the parts that a worker computes with. See `volary.data.reader.OrderReader`."""

    def expect(self, coming: Iterable[SamplePlaces]) -> None:
        """Announce the portions that are read next, in this order, in place of those that were announced before."""
        ...

    def read(self, places: SamplePlaces) -> ReadPortion:
        """Read a portion. Raises as readers do."""
        ...

    def close(self) -> None:
        """Let nothing more be read."""
        ...


class SessionPortions:
    """See `PortionReader`. Portions of batches of `batch_size`, each in up to `pieces` parts, to save memory."""

    def __init__(
        self, reader: SampleReader, batch_size: int, pieces: int, network: TrainedNetwork, reads: Reads
    ) -> None:
        self._reader, self._batch_size, self._pieces, self._network = reader, batch_size, pieces, network
        self._reads, self._epoch = reads, -1

    def expect(self, coming: Iterable[SamplePlaces]) -> None:
        self._reader.expect(coming)

    def read(self, places: SamplePlaces) -> ReadPortion:
        epoch, total = places.epoch, self._batch_size
        if self._epoch != epoch:
            self._reads.end_epoch(self._epoch)
            self._epoch = epoch
        self._reads.tell_decoding()
        inputs, targets, lost = self._reader.read(places)
        batch = Batch(inputs, targets, total, epoch, places.start // total, False, lost, self._reader.scale)

        def number(place: int) -> int:
            return int(self._reader.numbers(places)[place])

        return ReadPortion(micro_batches(batch, self._pieces, self._network, number), lost)

    def close(self) -> None:
        self._reads.end_epoch(self._epoch)
