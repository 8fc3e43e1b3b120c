"""What `worker.feed` gives: batches of a user's own data, shared out over the workers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from volary.errors import SettingError

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from volary.data.batch import Batch
    from volary.data.feed import Feed
    from volary.train.own.own_step import Share
    from volary.train.recording.recorder import Recorder


class OwnFeed:
    """Batches of (inputs, targets) on the worker's device; `len` is the number of steps of an epoch."""

    def __init__(self, feed: Feed, share: Share, recorder: Recorder, device: torch.device) -> None:
        self._feed, self._share, self._recorder, self._device = feed, share, recorder, device
        self._spare: tuple[Tensor, Tensor] | None = None

    def __len__(self) -> int:
        if self._feed.steps_per_epoch is None:
            raise SettingError("the data is a stream without a length")
        return self._feed.steps_per_epoch

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        feed, share = self._feed, self._share
        if feed.position:  # an epoch that was left with `break`
            feed.epoch, feed.position = feed.epoch + 1, 0
        while True:
            self._recorder.enter_step("data")
            batch = next(feed).to(self._device)
            share.weight, share.samples, share.total = batch.weight, batch.count, batch.total
            share.ends_epoch = batch.ends_epoch
            share.epoch = batch.epoch + (batch.step_in_epoch + 1) / (feed.steps_per_epoch or 1)
            self._recorder.enter("forward")
            yield self._never_empty(batch)
            if batch.ends_epoch:
                return

    def _never_empty(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """The batch, or a sample of an earlier one: means and batch norms of nothing are NaN or refused."""
        if batch.count:
            self._spare = batch.inputs[:1], batch.targets[:1]
        elif self._spare is not None:
            return self._spare
        return batch.inputs, batch.targets
