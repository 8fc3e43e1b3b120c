"""Portions of a user's loader, which the run's roster hands out: read ahead by the loader's own processes."""

from __future__ import annotations

import hashlib
import random
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np
import torch

from volary.data.batching.no_samples import without_rows
from volary.data.batching.structures import moved
from volary.data.indexed import BatchRange
from volary.data.portions import ReadPortion
from volary.data.sharing.among import STAND_IN, stand_in
from volary.data.sharing.indexed import SharedIndices
from volary.data.sharing.loader_reading import reading
from volary.data.sharing.replayed import ReplayedOrder
from volary.errors import BadInput
from volary.sharding.epochs import Epochs


@dataclass(frozen=True, eq=False)
class LoaderPart:
    """See `volary.data.portions.PortionPart`; inputs: the batch as collate_fn made it."""

    inputs: Any
    count: int
    targets: None = None

    @property
    def counted(self) -> float:
        """The count of all samples, unless the loop says otherwise."""
        return float(self.count)


class LoaderPortions:
    """See `volary.data.portions.PortionReader`. Of a loader that takes all samples once an epoch.

    order: of its epochs, which is rank 0's. Raises BadInput for any other, whose samples could not be handed out.

    A loader's processes are given what is expected, and after that the worker's share of the epoch's next batches, as
    long as portions come so. What they draw at random a portion decides, whichever of them reads it.
    """

    def __init__(self, shared: Any, device: torch.device) -> None:
        shuffled = shared.shuffled if isinstance(shared, SharedIndices) else None
        if shuffled is None:
            raise BadInput(
                "worker.feed was given data that does not take each sample once an epoch, by index; accepted with "
                "exchange=server: a data set with __getitem__ and __len__, or a DataLoader of one, shuffled or not"
            )
        self.loader, size = shared.loader, int(shared.loader.batch_size)
        whole = len(self.loader.dataset)
        self.epochs = Epochs(whole // size * size if self.loader.drop_last else whole, size)
        self._device = device
        self.order: ReplayedOrder | None = None  # once samples are handed out, or the run is resumed
        self.epoch = -1  # the newest that was read of
        self._ahead = self.loader.num_workers * (self.loader.prefetch_factor or 0)  # batches, at any time
        self._due: list[BatchRange] = []  # what is read next
        self._asked = deque[BatchRange | None]()  # of the processes, in order, and not taken yet; None: nothing
        self._taken: dict[BatchRange, Any] = {}  # batches, or what reading them raised
        self._newest = BatchRange(-1, 0, 0)
        self._regular = True  # portions are this worker's shares of one batch after the other
        self._batches: Iterator[Any] | None = None

    def begin(self, order: bytes | None = None) -> bytes:
        """Samples are handed out from now on. order: what the first worker's `begin` returned, of all workers."""
        if self.order is None or order is not None:
            self.order = ReplayedOrder(self.loader, order)
        return self.order.state

    def expect(self, portions: Sequence[BatchRange]) -> None:
        if not (self._ahead and portions):
            return
        self._due = [*portions, *(islice(self._following(portions[-1]), self._ahead) if self._regular else ())]
        self._taken = {span: batch for span, batch in self._taken.items() if span in self._due}
        self._begin()
        while self._asked[0] is None and self._next_due() is not None:
            self._take()

    def read(self, portion: BatchRange) -> ReadPortion:
        self.epoch = max(self.epoch, portion.epoch)
        if portion not in self._taken and portion not in self._asked:
            self._due.insert(0, portion)
        self._begin()
        while portion not in self._taken:
            self._take()
        batch = self._taken.pop(portion)
        self._due = [span for span in self._due if span != portion]
        if isinstance(batch, Exception):
            raise batch
        before, self._newest = self._newest, portion
        self._regular = before.epoch != portion.epoch or portion == next(self._following(before), None)
        count = portion.end - portion.start
        if not count:  # the worker goes through the loop without samples
            batch, _ = without_rows(batch, STAND_IN)
        return ReadPortion([LoaderPart(moved(batch, self._device), count)], 0, self._numbers(portion))

    def close(self) -> None:
        """Let the loader's processes end."""
        self._batches = None

    def _begin(self) -> None:
        if self._batches is None:
            # a generator of its own: the program's is not drawn from
            self._batches = iter(reading(self.loader, self._drawing(), torch.Generator()))

    def _take(self) -> None:
        """Take the batch that was asked for first, and let another be asked for."""
        assert self._batches is not None
        batch: Any
        try:
            batch = next(self._batches)
        except Exception as problem:  # is raised where that batch is read, if it is
            # of a process its text has the traceback; this one's would keep the processes beyond `close`
            batch = problem.with_traceback(None) if self._ahead else problem
        if (span := self._asked.popleft()) is not None:
            self._taken[span] = batch

    def _drawing(self) -> Iterator[Any]:
        """Yield, as a loader's batch sampler, the indices of what is due, and none while nothing is."""
        while True:
            span = self._next_due()
            self._asked.append(span)
            indices = [] if span is None else self._numbers(span).tolist() or stand_in([0])
            yield _Seeding(indices, self._seed(span)) if self._ahead and span is not None else indices

    def _next_due(self) -> BatchRange | None:
        return next((span for span in self._due if span not in self._asked and span not in self._taken), None)

    def _following(self, span: BatchRange) -> Iterator[BatchRange]:
        """The same share of the epoch's batches after that of `span`."""
        size, samples = self.epochs.batch_size, self.epochs.samples
        while (start := span.start + size) < samples:
            span = BatchRange(span.epoch, start, min(span.end + size, samples))
            yield span

    def _numbers(self, span: BatchRange) -> torch.Tensor:
        assert self.order is not None
        return self.order.epoch(span.epoch)[span.start : span.end]

    def _seed(self, span: BatchRange) -> int:
        assert self.order is not None
        return int.from_bytes(hashlib.sha256(self.order.state + repr(span).encode()).digest()[:4])


@dataclass(frozen=True)
class _Seeding:
    """Indices that are a list, and have seeded all random generators, in the process that receives them."""

    indices: list[int]
    seed: int

    def __reduce__(self) -> Any:
        return _seeded, (self.indices, self.seed)


def _seeded(indices: list[int], seed: int) -> list[int]:
    random.seed(seed)
    np.random.seed(seed)
    torch.manual_seed(seed)
    return indices
