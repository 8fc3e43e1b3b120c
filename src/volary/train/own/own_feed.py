"""What `worker.feed` gives: batches of a user's own data, shared out over the workers."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import msgspec

from volary.comm.groups.blocking import gather_plain
from volary.data.structures import moved
from volary.errors import SettingError

if TYPE_CHECKING:
    import torch

    from volary.comm.groups.group import Group
    from volary.data.sharing.among import Batches, SharedData
    from volary.train.own.own_step import Share
    from volary.train.recording.recorder import Recorder


class OwnFeed:
    """Batches as the loader's collate_fn makes them, on the worker's device; `len` is the number of steps of an epoch.

    Each `for` over it is an epoch. What else one asks of it (`dataset`, `batch_size`, `sampler`, ...) the loader has.
    """

    def __init__(self, shared: SharedData, share: Share, recorder: Recorder, device: torch.device) -> None:
        self._shared, self._share, self._recorder, self._device = shared, share, recorder, device
        self._epoch = 0  # of the next `for`

    def __len__(self) -> int:
        if self._shared.steps is None:
            raise SettingError("the data is a stream without a length")
        return self._shared.steps

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # a copy of it is asked before it has anything
            raise AttributeError(name)
        return getattr(self._shared.loader, name)

    def __iter__(self) -> Iterator[Any]:
        share, epoch = self._share, self._epoch
        self._epoch += 1  # now: an epoch that is left with `break` is over
        self._recorder.enter_step("data")
        for step, part in enumerate(self._shared.epoch(epoch)):
            share.weight, share.samples, share.total = part.samples / part.total, part.samples, part.total
            share.ends_epoch = part.ends_epoch
            done = (step + 1) / self._shared.steps if self._shared.steps else 0.0
            share.epoch = epoch + (1.0 if part.ends_epoch else done)
            batch = moved(part.batch, self._device)
            self._recorder.enter("forward")
            yield batch
            if not part.ends_epoch:
                self._recorder.enter_step("data")


def of_first(batches: Batches, group: Group) -> Batches:
    """Rank 0's plan of an epoch. A collective call: digests are compared, and only what differs travels."""
    digest = hashlib.sha256(msgspec.json.encode(batches, enc_hook=str)).hexdigest()
    if len(set(gather_plain(digest, group))) == 1:
        return batches
    found: Batches = gather_plain(batches if group.rank == 0 else None, group)[0]
    return found
