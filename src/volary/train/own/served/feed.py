"""`worker.feed` over servers: the samples that the run's roster hands out to this worker."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from volary.data.sharing.among import Among
from volary.data.sharing.shared import shared
from volary.sharding.samples import SampleShare
from volary.train.own.served.portions import LoopPortions
from volary.train.state.seeds import restore_generators

if TYPE_CHECKING:
    import torch


def portions_of(
    data: Any, batch_size: int | None, shuffle: bool | None, *, rank: int, workers: int, device: torch.device
) -> LoopPortions:
    """What the roster hands out of data that `worker.feed` was given on worker `rank`. Raises what `shared` raises."""
    among = Among(SampleShare(rank, workers), lambda plan: plan)
    return LoopPortions(shared(data, batch_size, shuffle, among), device)


class ServedFeed:
    """Batches as the loader's collate_fn makes them, on the worker's device; `len` is the steps of an epoch of all.

    Each `for` over it is what this worker learns from of an epoch; after a `break` the next one goes on there. epoch:
    gives the batches up to the epoch's end, which is at least the one that it is given.
    """

    def __init__(self, portions: LoopPortions, epoch: Callable[[int], Iterator[Any]]) -> None:
        self.portions, self._epoch = portions, epoch
        self.under_way = False  # whether a `for` over it has begun and not ended
        self._resumed: tuple[int, Any] = (-1, None)  # the epoch, and random generators as of its next batch
        self._ahead: int | None = None  # by how many epochs the run was, when this worker got its first batch
        self._loops = 0  # over it that have ended in this epoch of `worker.epochs`

    def __len__(self) -> int:
        return len(self.portions.loader)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # a copy of it is asked before it has anything
            raise AttributeError(name)
        return getattr(self.portions.loader, name)

    def begin_epoch(self) -> int:
        """See `ResumableFeed`: a worker that joins follows the run's epochs from its second on."""
        loops, self._loops = max(1, self._loops), 0
        if self._ahead is None:
            return 0
        ahead, self._ahead = self._ahead // loops, 0
        return ahead

    def state(self, *, within: bool) -> dict[str, Any]:
        """The epoch that is under way; the roster knows which of its samples are learnt from."""
        order = self.portions.order
        return {
            "epoch": self.portions.epoch + (not within),
            "within": within,
            "order": None if order is None else list(order.state),
        }

    def resume(self, state: Mapping[str, Any], generators: Any, workers: int) -> None:
        """Go on in that epoch, with random generators as of its next batch."""
        self._resumed = state["epoch"], generators if state["within"] else None
        if (order := state.get("order")) is not None:  # not in checkpoints of earlier versions
            self.portions.begin(bytes(order))

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
                    self._ahead = max(0, self.portions.epoch - expected)
                yield batch
        finally:
            self.under_way = False
            self._loops += 1
