"""A rank's samples in lock step: its share of each batch, what of them cannot be read, its share of validation data."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from volary.data.datasets.stream import Stream
from volary.data.feed import Feed
from volary.train.corrupt import Corrupt, teller
from volary.train.model import ValidationBatches, readable, watch_queue
from volary.train.recording.reads import Reads, tell_dropped

if TYPE_CHECKING:
    from volary.comm.groups.group import Bulletin, Group
    from volary.data.batching.batch import Batch
    from volary.train.agreement.votes import Agreed
    from volary.train.model import Model
    from volary.train.recording.recorder import Recorder
    from volary.train.state.stateful import Stateful


class RankData:
    """A session's data for one rank of `group`, whose ranks have samples of their own.

    bulletin: of all ranks of the run. steps, steps_per_epoch: the run's length and that of an epoch, as the feed counts
    them. growth: lets batches grow, if they may. corrupt: counts samples that cannot be read. validation: makes batches
    of validation data.
    """

    def __init__(self, model: Model, group: Group, bulletin: Bulletin, recorder: Recorder) -> None:
        session, data = model.session, model.session.data
        length = None if isinstance(model.samples, Stream) else len(model.samples)
        self.corrupt = Corrupt(length, data.skip_corrupt, recorder, bulletin)
        samples = readable(session, model.samples, self.corrupt.tell)
        watch_queue(recorder, model.samples)
        place, seed = {"rank": group.rank, "world_size": group.size}, session.train.seed
        self.feed = Feed(samples, data.batch_size, **place, seed=seed, shuffle=data.shuffle)
        self.steps = session.train.steps or self.feed.steps_in(session.train.epochs or 0)
        self.steps_per_epoch = self.feed.steps_per_epoch or self.steps
        self.feed.limit(self.steps)
        self.growth = data.batch.build(self.feed, recorder)
        lost, dropped = teller(recorder, "test"), partial(tell_dropped, split="test", recorder=recorder)
        self.validation = ValidationBatches(model, group.rank, group.size, lost, dropped)
        self._reads = Reads(model.samples, recorder)

    def parts(self) -> dict[str, Stateful]:
        """The parts that a checkpoint keeps, by name; the same on all ranks."""
        parts: dict[str, Stateful] = {"feed": self.feed, "corrupt": self.corrupt}
        return parts | ({"growth": self.growth} if self.growth else {})

    def count(self, batch: Batch, agreed: Agreed) -> None:
        """Take note of a step, whose newest batch this is. Raises DataError if an epoch has lost more than it may."""
        self.corrupt.count(batch, agreed)
        self._reads.tell_decoding()
        if batch.ends_epoch:
            self._reads.end_epoch(batch.epoch)
