"""`worker.feed` over servers: the samples that the run's roster hands out to this worker."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from volary.data.batching.no_samples import without_rows
from volary.data.batching.structures import moved
from volary.data.sharing.among import STAND_IN, stand_in
from volary.data.sharing.indexed import SharedIndices
from volary.data.sharing.replayed import ReplayedOrder
from volary.errors import BadInput
from volary.train.served.portions import ReadPortion
from volary.train.state.seeds import restore_generators

if TYPE_CHECKING:
    from volary.server.protocol.messages import Portion


@dataclass(frozen=True, eq=False)
class OwnPart:
    """See `volary.train.served.portions.PortionPart`; inputs: the batch as collate_fn made it."""

    inputs: Any
    count: int
    targets: None = None

    @property
    def counted(self) -> float:
        """All samples, unless the loop says otherwise."""
        return float(self.count)


class OwnPortions:
    """See `volary.train.served.portions.PortionReader`. Of a loader that takes all samples once an epoch.

    order: of its epochs, which is rank 0's. Raises BadInput for any other, whose samples could not be handed out.
    """

    def __init__(self, shared: Any, device: torch.device) -> None:
        shuffled = shared.shuffled if isinstance(shared, SharedIndices) else None
        if shuffled is None:
            raise BadInput(
                "worker.feed was given data that does not take each sample once an epoch, by index; accepted with "
                "exchange=server: a data set with __getitem__ and __len__, or a DataLoader of one, shuffled or not"
            )
        self.loader, self.batch_size = shared.loader, int(shared.loader.batch_size)
        whole = len(self.loader.dataset)
        self.samples = whole // self.batch_size * self.batch_size if self.loader.drop_last else whole
        self._shared, self._device = shared, device
        self.order: ReplayedOrder | None = None  # once samples are handed out, or the run is resumed
        self.epoch = -1  # the newest that was read of

    def begin(self, order: bytes | None = None) -> bytes:
        """Samples are handed out from now on. order: what the first worker's `begin` returned, of all workers."""
        if self.order is None or order is not None:
            self.order = ReplayedOrder(self.loader, order)
        return self.order.state

    def expect(self, portions: Sequence[Portion]) -> None:
        """The user's data set is read by the thread that trains, as without Volary and workers of a loader."""

    def read(self, portion: Portion) -> ReadPortion:
        assert self.order is not None
        self.epoch = max(self.epoch, portion.epoch)
        start, end = portion.start, portion.end
        numbers = self.order.epoch(portion.epoch)[start:end]
        if start < end:
            batch = self._shared.read(numbers.tolist())
        else:  # the worker goes through the loop without samples
            batch, _ = without_rows(self._shared.read(stand_in([0])), STAND_IN)
        return ReadPortion([OwnPart(moved(batch, self._device), end - start)], 0, numbers)

    def close(self) -> None:
        pass


class ServedFeed:
    """Batches as the loader's collate_fn makes them, on the worker's device; `len` is the steps of an epoch of all.

    Each `for` over it is what this worker learns from of an epoch; after a `break` the next one goes on there. epoch:
    gives the batches up to the epoch's end, which is at least the one that it is given.
    """

    def __init__(self, portions: OwnPortions, epoch: Callable[[int], Iterator[Any]]) -> None:
        self._portions, self._epoch = portions, epoch
        self.under_way = False  # whether a `for` over it has begun and not ended
        self._resumed: tuple[int, Any] = (-1, None)  # the epoch, and random generators as of its next batch
        self._ahead: int | None = None  # by how many epochs the run was, when this worker got its first batch
        self._loops = 0  # over it that have ended in this epoch of `worker.epochs`

    def __len__(self) -> int:
        return len(self._portions.loader)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # a copy of it is asked before it has anything
            raise AttributeError(name)
        return getattr(self._portions.loader, name)

    def begin_epoch(self) -> int:
        """See `KeptFeed`: a worker that joins follows the run's epochs from its second on."""
        loops, self._loops = max(1, self._loops), 0
        if self._ahead is None:
            return 0
        ahead, self._ahead = self._ahead // loops, 0
        return ahead

    def state(self, *, within: bool) -> dict[str, Any]:
        """Which epoch is under way; what of it is learnt from the roster keeps."""
        order = self._portions.order
        return {
            "epoch": self._portions.epoch + (not within),
            "within": within,
            "order": None if order is None else list(order.state),
        }

    def resume(self, state: Mapping[str, Any], generators: Any, workers: int) -> None:
        """Go on in that epoch, with random generators as of its next batch."""
        self._resumed = state["epoch"], generators if state["within"] else None
        if (order := state.get("order")) is not None:  # not in checkpoints of earlier versions
            self._portions.begin(bytes(order))

    def __iter__(self) -> Iterator[Any]:
        (first, generators), self._resumed = self._resumed, (-1, None)
        batches = self._epoch(first)
        if generators is not None:
            restore_generators(generators)
        return self._given(batches, max(first, 0))

    def _given(self, batches: Iterator[Any], expected: int) -> Iterator[Any]:
        self.under_way = True
        try:
            for batch in batches:
                if self._ahead is None:
                    self._ahead = max(0, self._portions.epoch - expected)
                yield batch
        finally:
            self.under_way = False
            self._loops += 1
