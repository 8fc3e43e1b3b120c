"""The feeds of a loop of one's own whose workers keep step: each has its share of every batch."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from volary.data.sharing.among import Among
from volary.data.sharing.own_sharding import SharedAlready
from volary.data.sharing.shared import shared
from volary.data.sharing.stream_in_shards import SharedStreamInShards
from volary.errors import SettingError
from volary.train.own.lockstep_position import LockstepPosition, of_first
from volary.train.own.loop_feed import LoopFeed
from volary.train.own.recovering.divided_again import DividedAgain, EpochOrder
from volary.train.own.recovering.fixed_members import FixedMembers, refuse_with_recovery
from volary.train.own.recovering.loop_members import LoopMembers
from volary.train.own.together import HasPeers, sure_call

if TYPE_CHECKING:
    import torch

    from volary.data.datasets.stream_shards import ValueExchange
    from volary.data.sharing.among import Batches, SharedData
    from volary.sharding.samples import SampleShare
    from volary.train.own.loop_feed import FeedPosition
    from volary.train.own.model.share import Share
    from volary.train.recording.recorder import Recorder


class Feeding(HasPeers, Protocol):
    """A loop whose workers have a share of each batch."""

    @property
    def samples(self) -> SampleShare:
        """This worker's, among those that there are now."""
        ...

    def have_batch_norm(self) -> bool:
        """Whether a single sample is of no use to a model in training."""
        ...

    def follow(self, generators: Any) -> int:
        """A batch is handed out; as of `LockstepPosition`."""
        ...

    def change(self, asked: FeedPosition) -> None:
        """A batch is about to be handed out; as of `LockstepPosition`."""
        ...


class LockstepFeeds:
    """See `volary.train.own.worker.Worker.feed`. The first call with some data makes its feed, later ones find it."""

    def __init__(
        self,
        loop: Feeding,
        members: LoopMembers | FixedMembers,
        share: Share,
        recorder: Recorder,
        device: torch.device,
        exchange: ValueExchange,
    ) -> None:
        self._loop, self._members, self._share = loop, members, share
        self._recorder, self._device, self._exchange = recorder, device, exchange
        self._made: list[tuple[tuple[Any, int | None, bool | None], LoopFeed]] = []

    def feed(self, data: Any, batch_size: int | None, shuffle: bool | None, *, differ: bool) -> LoopFeed:
        """The feed of these data. differ: workers' parameters do. Raises as `Worker.feed`."""
        for (known, *how), feed in self._made:  # one that is fed in each epoch goes on where it was
            if known is data and how == [batch_size, shuffle]:
                return feed
        order = EpochOrder(partial(of_first, together=partial(sure_call, self._loop, self._recorder)))
        divided = partial(self._divided, data, batch_size, shuffle, order)
        kept, count = divided(), self._loop.samples.count
        already = isinstance(kept, SharedAlready)
        if already:
            refuse_with_recovery(self._members, "a DistributedSampler, which divides an epoch among all workers")
        if isinstance(kept, SharedStreamInShards):
            refuse_with_recovery(self._members, "a stream in shards, of which each worker reads its own")
        size = getattr(kept.loader, "batch_size", None)
        if differ and size is not None and size < count and not already:
            raise SettingError(
                f"batch_size is {size}, and with workers whose parameters differ each learns from samples of its own; "
                f"accepted: {count} or more, a sample a worker"
            )
        again = None if isinstance(self._members, FixedMembers) else DividedAgain(self._members, order, divided)
        feed = LoopFeed(LockstepPosition(kept, self._share, self._recorder, self._device, self._loop, again))
        self._made.append(((data, batch_size, shuffle), feed))
        return feed

    def _divided(
        self, data: Any, batch_size: int | None, shuffle: bool | None, order: Callable[[Batches], Batches]
    ) -> SharedData:
        own = self._loop.samples
        alike = order if own.count > 1 or self._members.recovers else None
        among = Among(own, alike, self._loop.have_batch_norm, self._exchange)
        return shared(data, batch_size, shuffle, among)
