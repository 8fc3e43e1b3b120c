"""The batches of one worker: epoch after epoch, from any position, on any number of workers.

Global batch b of an epoch is `order[b * B : (b + 1) * B]`, share r of N is `[r::N]` of it, or neighbours in it where
shares have sizes (`SampleShare`). The position is counted in samples over all workers, so that it means the same to any
number of them: a resize loses nothing.
Batches may grow (`size`); steps are counted as if they had not, so that so many steps are always as much data. The last
two grown ones of an epoch have the same size: a remainder of one sample, which the first size never had, would be the
end of a network with batch norm.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING

from volary.data.batching.batch import Batch
from volary.data.datasets.stream import Stream
from volary.data.reader import SamplePlaces, SessionReader
from volary.data.sample_names import called
from volary.data.sample_reader import SampleReader
from volary.errors import DataError, SettingError
from volary.sharding.epochs import Epochs
from volary.sharding.samples import UNDIVIDED, SampleShare

if TYPE_CHECKING:
    from torch import Tensor

    from volary.data.samples import Samples


class Feed:
    """Iterates over batches without end, or up to `limit`; `epoch`, `position` and `step` say where it is.

    samples: of an epoch over all workers; None for a stream that does not say. epochs: that it goes through, if it is
    known how long they are. size: samples of the next batch, over all workers. share: this worker's of it. Both may be
    changed between two batches.
    """

    def __init__(
        self,
        data: Samples | Stream,
        batch_size: int,
        *,
        share: SampleShare = UNDIVIDED,
        seed: int = 1,
        shuffle: bool = True,
        weights: Tensor | None = None,
        streams: bool = False,
    ) -> None:
        """batch_size: samples of a step over all workers. share: this worker's of them.

        The seed decides the order, together with the epoch. weights (n,): samples are drawn by these. streams: a
        batch has the next sample of each of `batch_size` streams.
        """
        if batch_size < 1:
            raise SettingError(f"data.batch_size is {batch_size}; accepted: 1 or more")
        if isinstance(data, Stream) and shuffle:
            raise SettingError(
                f"data.shuffle is true, but {data.name} is a stream, which comes in its own order; accepted: "
                "data.shuffle=false (a stream may shuffle itself: its set_epoch(epoch) is called before each epoch)"
            )
        self.epoch = 0  # of the next batch
        self.position = 0  # samples of that epoch that were given out, over all workers
        self.step = 0  # given out since the beginning of the run: batches, if all have `batch_size` samples
        self.begun = 0  # `step` before the newest batch
        self._newest = SamplePlaces(0, 0, 0)  # of this worker's share of the newest batch
        self.batch_size, self.seed, self.shuffle = batch_size, seed, shuffle
        self.size = batch_size
        self.called = partial(called, data)  # of the sample with a number in the data, in a sentence
        self.share = share
        self._last_step: int | None = None
        self._last_end: tuple[int, int] | None = None  # epoch and position there, if that is known
        self._reader: SessionReader = (
            data
            if isinstance(data, Stream)
            else SampleReader(data, batch_size, seed=seed, shuffle=shuffle, weights=weights, streams=streams)
        )
        self.samples = self._reader.length
        self.epochs = None if self.samples is None else Epochs(self.samples, batch_size)

    @property
    def given(self) -> int:
        """Samples given out since the beginning of the run, over all workers."""
        if self.samples is None:
            return self.step * self.batch_size
        return self.epoch * self.samples + self.position

    @property
    def steps_per_epoch(self) -> int | None:
        """Steps of an epoch, the last of which may be smaller; None for a stream that does not say its length."""
        return None if self.epochs is None else self.epochs.steps

    def steps_in(self, epochs: float) -> int:
        """Steps of so many epochs, which may be a fraction; at least 1. Raises SettingError if that is unknown."""
        if self.steps_per_epoch is None:
            raise SettingError(
                "train.epochs cannot be counted in steps: the data is a stream without a length; accepted: train.steps"
            )
        return max(1, round(epochs * self.steps_per_epoch))

    def limit(self, steps: int) -> None:
        """End the iteration when `step` has reached `steps`, counted from the beginning of the run."""
        self._last_step = steps
        self._last_end = None if self.epochs is None else self.epochs.end_of(steps)

    @property
    def ended(self) -> bool:
        """Whether the limit is reached."""
        return self._last_step is not None and self.step >= self._last_step

    @property
    def batches_ahead(self) -> int:
        """Batches that are still to come up to the limit, if they keep their size; of grown ones perhaps one more."""
        assert self._last_step is not None
        if self.step >= self._last_step:
            return 0
        if self.epochs is None or self._last_end is None:
            return -(-(self._last_step - self.step) * self.batch_size // self.size)
        last, end = self._last_end
        if self.epoch >= last:
            return -((self.position - end) // self.size)
        grown = Epochs(self.epochs.samples, self.size)
        rest = -((self.position - grown.samples) // self.size)
        return rest + (last - self.epoch - 1) * grown.steps - (-end // self.size)

    def __iter__(self) -> Iterator[Batch]:
        return self

    def __next__(self) -> Batch:
        if self.ended:
            raise StopIteration
        return self.read(self.size)

    def read(self, size: int) -> Batch:
        """The next batch, of up to `size` samples over all workers."""
        size = self._next_size(size, self.position)
        self._reader.expect(self._coming(size))
        end, ends = self._reader.end_of(self.epoch, self.position, size)
        self._newest = self._own(self.epoch, self.position, end)
        found, total, scale = self._reader.read(self._newest), end - self.position, self._reader.scale
        before, after = self.position // self.batch_size, -(-end // self.batch_size) if ends else end // self.batch_size
        batch = Batch(found.inputs, found.targets, total, self.epoch, after - 1, ends, found.lost, scale)
        # before the batch is handed out: a checkpoint taken after its step must go on with the next one
        self.epoch, self.position = (self.epoch + 1, 0) if ends else (self.epoch, end)
        self.begun, self.step = self.step, self.step + after - before
        return batch

    def _own(self, epoch: int, start: int, end: int) -> SamplePlaces:
        """The places of this worker's share of a batch."""
        own = range(start, end)[self.share.of(end - start, self.batch_size)]
        return SamplePlaces(epoch, own.start, own.stop, own.step)

    def _coming(self, size: int) -> Iterator[SamplePlaces]:
        """Yield this worker's share of the next batch, of `size` samples, and of those after it of the same size."""
        if self.epochs is None:
            return
        epoch, start, samples = self.epoch, self.position, self.epochs.samples
        while self._last_end is None or (epoch, start) < self._last_end:
            end = min(start + size, samples)
            yield self._own(epoch, start, end)
            epoch, start = (epoch + 1, 0) if end == samples else (epoch, end)
            size = self._next_size(self.size, start)

    def _next_size(self, size: int, position: int) -> int:
        if size <= self.batch_size or self.samples is None:
            return size
        return even(size, self.samples - position)

    def number(self, place: int) -> int:
        """The number in the data of the sample at `place` of the newest batch."""
        return int(self._reader.numbers(self._newest)[place])

    def state(self) -> dict[str, int]:
        """The feed's place, in plain numbers, from which any number of workers can continue."""
        length = -1 if self.samples is None else self.samples
        position = {"epoch": self.epoch, "position": self.position, "step": self.step}
        return {
            **position,
            "seed": self.seed,
            "shuffle": self._reader.shuffled if self._reader else 0,
            "samples": length,
        }

    def restore(self, state: dict[str, int]) -> None:
        """Go on where `state` was taken. Raises SettingError or DataError if the order would be another one."""
        mine = self.state()
        if set(state) != set(mine):
            raise DataError(f"the position in the data has the fields {sorted(state)}; accepted: {sorted(mine)}")
        for name, setting in (("seed", "train.seed"), ("shuffle", "data.shuffle")):
            if state[name] != mine[name] and (name == "seed" or not (state[name] and mine[name])):
                raise SettingError(
                    f"{setting} is {mine[name]}, the checkpoint was written with {state[name]}: "
                    "the order of the samples would be another; accepted: the same value"
                )
        if state["shuffle"] != mine["shuffle"] and min(state["shuffle"], mine["shuffle"]) < 0:
            raise DataError(
                "samples are drawn by other weights than when the checkpoint was written, or not drawn: their order "
                "would be another; accepted: the same data and data.sampling"
            )
        if state["shuffle"] != mine["shuffle"]:
            raise DataError(
                f"the data is shuffled in blocks of {mine['shuffle']}, the checkpoint was written with blocks of "
                f"{state['shuffle']}: their order would be another; accepted: the same data in the same form"
            )
        if state["samples"] != mine["samples"]:
            raise DataError(
                f"the data has {mine['samples']} samples, the checkpoint was written with {state['samples']}; "
                "accepted: the same data"
            )
        if min(state["epoch"], state["position"], state["step"]) < 0 or (
            self.samples is not None and state["position"] >= self.samples
        ):
            raise DataError(f"the position in the data is {state}; accepted: within an epoch of {self.samples} samples")
        self.epoch, self.position, self.step = state["epoch"], state["position"], state["step"]


def even(size: int, left: int) -> int:
    """Samples to read next of `left`, in batches of up to `size` of which none is smaller than half of it."""
    return -(-left // 2) if size < left < 2 * size else min(size, left)


def one_pass(
    data: Samples | Stream, batch_size: int, share: SampleShare = UNDIVIDED, *, streams: bool = False
) -> Iterator[Batch]:
    """Yield each sample once, in order or in streams, shared out as by a feed, to evaluate. All workers get equally
    many batches.
    """
    feed = Feed(data, batch_size, share=share, shuffle=False, streams=streams)
    if feed.steps_per_epoch is not None:
        feed.limit(feed.steps_per_epoch)  # nothing is read ahead beyond it
    for batch in feed:
        yield batch
        if batch.ends_epoch:
            return
