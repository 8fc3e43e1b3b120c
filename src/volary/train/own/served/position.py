"""The position of a worker over servers in a user's own data: the run's roster hands out what is next."""

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


class RosterPosition:
    """See `volary.train.own.loop_feed.FeedPosition`. A worker that joins follows the run's epochs from its second on.

    epoch: gives the batches up to the end of the epoch that is under way, which is at least the one that it is given.
    """

    def __init__(self, portions: LoopPortions, epoch: Callable[[int], Iterator[Any]]) -> None:
        self.loader, self.portions = portions.loader, portions
        self.steps: int | None = len(portions.loader)
        self._epoch = epoch
        self._resumed: tuple[int, Any] = (-1, None)  # the epoch, and random generators as of its next batch
        self._ahead: int | None = None  # by how many epochs the run was, when this worker got its first batch

    def batches(self) -> Iterator[Any]:
        (first, generators), self._resumed = self._resumed, (-1, None)
        batches = self._epoch(first)
        if generators is not None:
            restore_generators(generators)
        for batch in batches:
            if self._ahead is None:
                self._ahead = max(0, self.portions.epoch - max(first, 0))
            yield batch

    def left_out(self, loops: int) -> int:
        if self._ahead is None:
            return 0
        ahead, self._ahead = self._ahead // max(1, loops), 0
        return ahead

    def state(self, *, within: bool) -> dict[str, Any]:
        """The epoch that is under way; the roster knows which of its samples are learnt from."""
        order, epoch = self.portions.order, self.portions.epoch + (not within)
        return {"epoch": epoch, "within": within, "order": None if order is None else list(order.state)}

    def resume(self, state: Mapping[str, Any], generators: Any, workers: int) -> None:
        self._resumed = state["epoch"], generators if state["within"] else None
        if (order := state.get("order")) is not None:  # not in checkpoints of earlier versions
            self.portions.begin(bytes(order))


def portions_of(
    data: Any, batch_size: int | None, shuffle: bool | None, *, rank: int, workers: int, device: torch.device
) -> LoopPortions:
    """The portions that the roster hands out of data that `worker.feed` was given on worker `rank`. Raises what
    `shared` raises.
    """
    return LoopPortions(shared(data, batch_size, shuffle, Among(SampleShare(rank, workers))), device)
