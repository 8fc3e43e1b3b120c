"""A loader with a `DistributedSampler`, which gives each worker as many samples of its own."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from torch.utils.data import DistributedSampler

from volary.data.sharing.among import Among, BatchShare, after, begin_epoch
from volary.errors import BadInput


class SharedAlready:
    """See `volary.data.sharing.among.SharedData`. batch_size is this worker's, as the script has it."""

    def __init__(self, loader: Any, among: Among) -> None:
        self.loader, self.workers = loader, among.own.count
        self.steps: int | None = len(loader)
        sampler: Any = loader.sampler if isinstance(loader.sampler, DistributedSampler) else loader.batch_sampler
        self._sampler = sampler
        if (sampler.num_replicas, sampler.rank) != (among.own.count, among.own.number):
            raise BadInput(
                f"the DistributedSampler shares among {sampler.num_replicas} as rank {sampler.rank}, and this is rank "
                f"{among.own.number} of {among.own.count} workers; accepted: num_replicas=worker.world_size and "
                "rank=worker.rank, or no DistributedSampler at all, since worker.feed shares"
            )

    def epoch(self, number: int, skip: int = 0, ready: Callable[[], None] = lambda: None) -> Iterator[BatchShare]:
        return after(self._epoch(number), skip, ready)

    def _epoch(self, number: int) -> Iterator[BatchShare]:
        begin_epoch(number, self._sampler)
        left = len(self._sampler)
        for step, batch in enumerate(self.loader):
            mine = min(self.loader.batch_size or left, left)
            left -= mine
            yield BatchShare(batch, mine, mine * self.workers, step + 1 == self.steps)
