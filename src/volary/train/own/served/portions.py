"""Portions of a user's loader, which the roster hands out."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from itertools import chain
from typing import TYPE_CHECKING

from volary.data.batching.structures import moved
from volary.data.reader import SamplePlaces
from volary.data.sharing.among import stand_in
from volary.data.sharing.indexed import SharedIndices
from volary.data.sharing.loader_reader import LoaderReader
from volary.data.sharing.replayed import ReplayedOrder
from volary.errors import BadInput
from volary.sharding.epochs import Epochs
from volary.train.data.micro_batches import waiting
from volary.train.served.portions import ReadPortion

if TYPE_CHECKING:
    import torch

    from volary.data.sharing.among import SharedData


class LoopPortions:
    """See `volary.train.served.portions.PortionReader`. Of a loader that takes all samples once an epoch.

    order: of its epochs, which is rank 0's. Raises BadInput for any other, whose samples could not be handed out.

    A loader's processes are given what is expected, and after that the worker's share of the epoch's next batches, as
    long as portions come so. What they draw at random a portion decides, whichever of them reads it.
    """

    def __init__(self, data: SharedData, device: torch.device) -> None:
        shuffled = data.shuffled if isinstance(data, SharedIndices) else None
        if shuffled is None:
            raise BadInput(
                "worker.feed was given data that does not take each sample once an epoch, by index; accepted with "
                "exchange=server: a data set with __getitem__ and __len__, or a DataLoader of one, shuffled or not"
            )
        self.loader, size = data.loader, int(data.loader.batch_size)
        whole = len(self.loader.dataset)
        self.epochs = Epochs(whole // size * size if self.loader.drop_last else whole, size)
        self.order: ReplayedOrder | None = None  # once samples are handed out, or the run is resumed
        self.epoch = -1  # the newest that was read of
        self._device, self._reader = device, LoaderReader(self.loader, self._numbers, self._seed)
        self._newest = SamplePlaces(-1, 0, 0)
        self._regular = True  # portions are this worker's shares of one batch after the other

    def begin(self, order: bytes | None = None) -> bytes:
        """Samples are handed out from now on. order: what the first worker's `begin` returned, of all workers."""
        if self.order is None or order is not None:
            self.order = ReplayedOrder(self.loader, order)
        return self.order.state

    def expect(self, coming: Iterable[SamplePlaces]) -> None:
        portions = list(coming)
        if portions and self._reader.ahead:
            self._reader.expect(chain(portions, self._following(portions[-1]) if self._regular else ()))

    def read(self, places: SamplePlaces) -> ReadPortion:
        self.epoch = max(self.epoch, places.epoch)
        batch = moved(self._reader.read(places)[0], self._device)
        before, self._newest = self._newest, places
        self._regular = before.epoch != places.epoch or places == next(self._following(before), None)
        count = len(places.range)
        return ReadPortion([waiting(batch, None, count, float(count), lambda place: self._numbers(places)[place])], 0)

    def close(self) -> None:
        self._reader.close()

    def _following(self, places: SamplePlaces) -> Iterator[SamplePlaces]:
        """The same share of the epoch's batches after that of `places`."""
        size, samples = self.epochs.batch_size, self.epochs.samples
        while (start := places.start + size) < samples:
            places = SamplePlaces(places.epoch, start, min(places.end + size, samples))
            yield places

    def _numbers(self, places: SamplePlaces) -> list[int]:
        assert self.order is not None
        order = self.order.epoch(places.epoch)
        numbers: list[int] = order[places.start : places.end].tolist()
        return numbers or stand_in(order[places.start : places.start + 1].tolist())

    def _seed(self, places: SamplePlaces) -> int:
        assert self.order is not None
        named = (places.epoch, places.start, places.end)
        return int.from_bytes(hashlib.sha256(self.order.state + repr(named).encode()).digest()[:4])
