"""The position of workers that keep step in a user's own data: of each batch of all, this worker's share is next."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec

from volary.comm.groups.blocking import gather_plain
from volary.data.batching.structures import moved
from volary.data.sharing.own_sharding import SharedAlready
from volary.errors import BadInput
from volary.train.state.seeds import generators_state, restore_generators

if TYPE_CHECKING:
    import torch

    from volary.comm.groups.group import Group
    from volary.data.sharing.among import Batches, SharedData
    from volary.train.own.model.share import Share
    from volary.train.recording.recorder import Recorder

_FOREIGN = (
    "a worker without samples of a batch was given another's, as a {} cannot be without rows: they count nothing in "
    "gradients and worker.mean, but in what the loop counts itself; accepted: drop_last=True, or batches of tensors"
)


class LockstepPosition:
    """See `volary.train.own.loop_feed.FeedPosition`. before_batch: called before each batch is handed out."""

    def __init__(
        self,
        shared: SharedData,
        share: Share,
        recorder: Recorder,
        device: torch.device,
        before_batch: Callable[[], None],
    ) -> None:
        self.loader, self.steps = shared.loader, shared.steps
        self._shared, self._share, self._recorder, self._device = shared, share, recorder, device
        self._before_batch = before_batch
        self._epoch = 0  # of the next `for`
        self._under_way: FeedPlace | None = None
        self._resumed: FeedPlace | None = None
        self._generators_then: Any = None  # of the whole process, where it is resumed
        self._warned = False  # that batches have another worker's samples

    def _generators(self) -> list[torch.Generator]:
        """The user's own generators, which draw samples."""
        named = [getattr(one, "generator", None) for one in (self.loader, getattr(self.loader, "sampler", None))]
        return list({id(one): one for one in named if one is not None}.values())

    def left_out(self, loops: int) -> int:
        return 0

    def state(self, *, within: bool) -> dict[str, Any]:
        return dict(vars(self._under_way or FeedPlace(self._epoch, 0, None, _states(self._generators()))))

    def resume(self, state: Mapping[str, Any], generators: Any, workers: int) -> None:
        place = FeedPlace(**state)
        if place.given and isinstance(self._shared, SharedAlready) and workers != self._shared.workers:
            raise BadInput(
                f"the loader's DistributedSampler divides an epoch among {self._shared.workers} workers, and the "
                f"checkpoint was written among the batches of one that was divided among {workers}; accepted: "
                f"{workers} workers, or a loader without a DistributedSampler"
            )
        self._epoch = place.epoch
        if place.began is None:
            _restore(self._generators(), place.own)
        else:
            self._resumed, self._generators_then = place, generators

    def batches(self) -> Iterator[Any]:
        try:
            yield from self._epoch_of_all()
        finally:
            self._under_way = None

    def _epoch_of_all(self) -> Iterator[Any]:
        share, epoch, resumed = self._share, self._epoch, self._resumed
        self._epoch += 1  # now: an epoch that is left with `break` is over
        self._resumed = None
        self._recorder.enter_step("data")
        if resumed is not None:
            restore_generators(resumed.began)
            _restore(self._generators(), resumed.own)
        self._under_way = FeedPlace(epoch, 0, generators_state(), _states(self._generators()))
        parts = self._shared.epoch(epoch)
        if resumed is not None:
            for _ in range(resumed.given):
                next(parts)
            self._under_way.given = resumed.given
            if self._generators_then is not None:
                restore_generators(self._generators_then)
        for step, part in enumerate(parts, self._under_way.given):
            self._under_way.given = step + 1
            share.take(part.samples, part.total, ends_epoch=part.ends_epoch)
            done = (step + 1) / self.steps if self.steps else 0.0
            share.epoch = epoch + (1.0 if part.ends_epoch else done)
            self._before_batch()
            if part.foreign and not self._warned:
                self._warned = True
                self._recorder.event("warning", text=_FOREIGN.format(type(part.batch).__name__))
            batch = moved(part.batch, self._device)
            self._recorder.enter("forward")
            yield batch
            if not part.ends_epoch:
                self._recorder.enter_step("data")


@dataclass
class FeedPlace:
    """The place of a `for` over a feed. given: batches of `epoch` that were given out. began: the random generators
    when it began; None: it has not begun. own: the loader's and the sampler's own generators then.
    """

    epoch: int
    given: int
    began: Any
    own: list[Any]


def _states(generators: list[torch.Generator]) -> list[Any]:
    return [one.get_state() for one in generators]


def _restore(generators: list[torch.Generator], states: list[Any]) -> None:
    for one, state in zip(generators, states, strict=True):
        one.set_state(state)


def of_first(batches: Batches, together: Callable[[str], AbstractContextManager[Group]]) -> Batches:
    """Rank 0's batches. A collective call: digests are compared, and only what differs travels.

    together: around what all workers do in a call.
    """
    digest = hashlib.sha256(msgspec.json.encode(batches, enc_hook=str)).hexdigest()
    with together("feed") as group:
        if len(set(gather_plain(digest, group))) == 1:
            return batches
        found: Batches = gather_plain(batches if group.leads else None, group)[0]
    return found
