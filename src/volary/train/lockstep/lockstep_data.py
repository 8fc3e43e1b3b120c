"""A rank's samples in lock step: its share of each batch, what of them cannot be read, its share of validation data."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from volary.data.choosing.weights import weights_of
from volary.data.datasets.stream import Stream
from volary.data.feed import Feed, one_pass
from volary.sharding.samples import UNDIVIDED, SampleShare
from volary.train.data.corrupt import Corrupt, teller
from volary.train.data.opening import readable, tell_hand_over, watch_queue
from volary.train.data.streams import Streams
from volary.train.lockstep.balance import Balance
from volary.train.recording.reads import Reads, tell_dropped

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from volary.comm.groups.group import Bulletin
    from volary.data.batching.batch import Batch
    from volary.data.samples import Samples
    from volary.train.agreement.votes import Agreed
    from volary.train.model import Model
    from volary.train.recording.recorder import Recorder
    from volary.train.state.stateful import Stateful


class ValidationBatches:
    """Makes batches of one `share` of the validation data. report: called for each sample that cannot be read.

    seen: called with the data after each pass. bulletin: of all who have a share; None: this is the only one.
    """

    def __init__(
        self,
        model: Model,
        share: SampleShare = UNDIVIDED,
        report: Callable[[int, str], None] = lambda *_: None,
        seen: Callable[[Samples | Stream], None] = lambda _: None,
        bulletin: Bulletin | None = None,
    ) -> None:
        self._bulletin = bulletin
        self._model, self._share, self._report, self._seen = model, share, report, seen
        self._samples: Samples | Stream | None = None

    def __call__(self) -> Iterator[Batch]:
        """One pass over this rank's share. Raises DataError if there is no validation data."""
        if self._samples is None:
            self._samples = readable(self._model.session, self._model.validation, self._report)
            if isinstance(self._samples, Stream) and self._bulletin is not None:
                self._samples.divide(self._share, self._bulletin.within("validation stream"))
        return self._pass(self._samples)

    def _pass(self, samples: Samples | Stream) -> Iterator[Batch]:
        batch_size, streams = self._model.session.data.batch_size, self._model.in_streams
        yield from one_pass(samples, batch_size, self._share, streams=streams)
        self._seen(samples)


class LockstepData:
    """A session's data for one rank, of which it has a `share`.

    bulletin: of all ranks of the run. steps, steps_per_epoch: the run's length and that of an epoch, as the feed counts
    them. thaws_at: the steps with which a stage ends. growth: lets batches grow, if they may. balance: lets shares
    follow speed, if they do. corrupt: counts samples
    that cannot be read. validation: makes batches of validation data. streams: what the network keeps between batches.
    """

    def __init__(self, model: Model, share: SampleShare, bulletin: Bulletin, recorder: Recorder) -> None:
        session, data = model.session, model.session.data
        length = None if isinstance(model.samples, Stream) else len(model.samples)
        self.corrupt = Corrupt(length, data.skip_corrupt, recorder, bulletin)
        samples = readable(session, model.samples, self.corrupt.report)
        if isinstance(samples, Stream):
            samples.divide(share, bulletin.within("stream"))
        watch_queue(recorder, model.samples)
        tell_hand_over(recorder, model.samples)
        weights = weights_of(model.samples, data.sampling)
        self.feed = Feed(
            samples,
            data.batch_size,
            share=share,
            seed=session.train.seed,
            shuffle=data.shuffle,
            weights=weights,
            streams=model.in_streams,
        )
        self.streams = Streams(model.module, share)
        self.streams.keep()
        self.steps = session.train.steps or self.feed.steps_in(session.train.epochs or 0)
        self.steps_per_epoch = self.feed.steps_per_epoch or self.steps
        self.feed.limit(self.steps)
        self.thaws_at = model.frozen.thaws_at(self.steps_per_epoch)
        self.growth = data.batch.build(self.feed, recorder)
        self.balance = Balance.of(session, self.feed, recorder)
        lost, dropped = teller(recorder, "test"), partial(tell_dropped, split="test", recorder=recorder)
        self.validation = ValidationBatches(model, share, lost, dropped, bulletin)
        self._reads = Reads(model.samples, recorder)

    def parts(self) -> dict[str, Stateful]:
        """The parts that a checkpoint keeps, by name; the same on all ranks."""
        parts: dict[str, Stateful] = {"feed": self.feed, "corrupt": self.corrupt}
        may_be = {"growth": self.growth, "balance": self.balance}
        return parts | {name: part for name, part in may_be.items() if part is not None}

    def count(self, batch: Batch, agreed: Agreed) -> None:
        """Take note of a step, whose newest batch this is. Raises DataError if an epoch has lost more than it may."""
        self.corrupt.count(batch, agreed)
        if self.balance is not None:
            self.balance.see(agreed)
        self._reads.tell_decoding()
        if batch.ends_epoch:
            self._reads.end_epoch(batch.epoch)
