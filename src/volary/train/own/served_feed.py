"""`worker.feed` over servers: the samples that the run's roster hands out to this worker."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from volary.data.batching.structures import moved
from volary.data.order import epoch_order
from volary.data.sharing.indexed import SharedIndices
from volary.errors import BadInput
from volary.train.served.portions import ReadPortion

if TYPE_CHECKING:
    from torch import Tensor

    from volary.server.protocol.messages import Portion


@dataclass(frozen=True, eq=False)
class OwnPart:
    """See `volary.train.served.portions.PortionPart`; inputs: the batch as collate_fn made it."""

    inputs: Any
    count: int
    targets: None = None


class OwnPortions:
    """See `volary.train.served.portions.PortionReader`. Of a loader that takes all samples once an epoch.

    Raises BadInput for any other, whose samples could not be handed out.
    """

    def __init__(self, shared: Any, device: torch.device, seed: int) -> None:
        shuffled = shared.shuffled if isinstance(shared, SharedIndices) else None
        if shuffled is None:
            raise BadInput(
                "worker.feed was given data that does not take each sample once an epoch, by index; accepted with "
                "exchange=server: a data set with __getitem__ and __len__, or a DataLoader of one, shuffled or not"
            )
        self.loader, self.batch_size = shared.loader, int(shared.loader.batch_size)
        whole = len(self.loader.dataset)
        self.samples = whole // self.batch_size * self.batch_size if self.loader.drop_last else whole
        self._shared, self._device, self._seed, self._shuffled = shared, device, seed, shuffled
        self._order: tuple[int, Tensor] = (-1, torch.empty(0))

    def expect(self, portions: Sequence[Portion]) -> None:
        """The user's data set is read by the thread that trains, as without Volary and workers of a loader."""

    def read(self, portion: Portion) -> ReadPortion:
        if self._order[0] != portion.epoch:
            order = epoch_order(len(self.loader.dataset), self._seed, portion.epoch, self._shuffled)
            self._order = portion.epoch, order
        # without a sample of the batch the worker goes through the loop with another's, whose gradients count nothing
        numbers = self._order[1][portion.start : max(portion.end, portion.start + 1)]
        batch = moved(self._shared.read(numbers.tolist()), self._device)
        return ReadPortion([OwnPart(batch, portion.end - portion.start)], 0, numbers)

    def close(self) -> None:
        pass


class ServedFeed:
    """Batches as the loader's collate_fn makes them, on the worker's device; `len` is the steps of an epoch of all.

    Each `for` over it is what this worker learns from of an epoch; after a `break` the next one goes on there. epoch:
    gives the batches up to the epoch's end.
    """

    def __init__(self, portions: OwnPortions, epoch: Callable[[], Iterator[Any]]) -> None:
        self._portions, self._epoch = portions, epoch

    def __len__(self) -> int:
        return len(self._portions.loader)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # a copy of it is asked before it has anything
            raise AttributeError(name)
        return getattr(self._portions.loader, name)

    def __iter__(self) -> Iterator[Any]:
        return self._epoch()
