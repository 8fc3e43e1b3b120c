"""Assigns samples to workers: epochs cut in portions, queues of workers, and what is not yet used up.

A plain state machine. A sample of an epoch is in exactly one portion at a time, until that portion is used.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from math import ceil
from typing import NamedTuple

from msgspec import Struct

from volary.server.protocol.updates import Portion
from volary.sharding.epochs import Epochs
from volary.sharding.samples import SampleShare


class RemainingSamples(Struct, frozen=True):
    """The samples left, in a checkpoint: the next epoch to deal, (epoch, start, end) of what was dealt, not used."""

    epoch: int = 0
    ranges: list[tuple[int, int, int]] = []


class Taken(NamedTuple):
    """A portion that a worker has been given. victim: whose it was to be, if it was not the worker's own."""

    portion: Portion
    victim: int | None


@dataclass(frozen=True, kw_only=True)
class PortionPlan:
    """epochs: of batches of which each worker's portion is a share. limit: samples that the run learns from.

    steals, epoch_share: see `volary.server.roster.closing.ConsistencyModel`.
    """

    epochs: Epochs
    limit: int
    steals: bool = True
    epoch_share: float | None = None

    @property
    def in_step(self) -> bool:
        """Each worker has a portion of each batch, an empty one if it must be: all do the same number of steps."""
        return not self.steals and self.epoch_share is None

    def dealable(self, epoch: int) -> int:
        """Samples of this epoch that the run is to learn from."""
        return max(0, min(self.epochs.samples, self.limit - epoch * self.epochs.samples))


class Portions:
    """Deals out a run's samples. left_over: samples that epochs ended without, and that came first in the next.

    offered: grows whenever somebody who was given nothing may be given something, unless an epoch ends with a share of
    the workers: then whoever finishes may begin the next one for all.
    """

    def __init__(self, plan: PortionPlan, left: RemainingSamples | None = None) -> None:
        self.plan = plan
        self.left_over = 0
        self._epoch = left.epoch if left else 0
        ranges = [(epoch, start, min(end, self._dealable(epoch))) for epoch, start, end in left.ranges] if left else []
        self._undealt = [(epoch, start, end) for epoch, start, end in ranges if start < end]
        self.offered = self._numbers = 0
        self._again: deque[Portion] = deque()
        self._queues: dict[int, deque[Portion]] = {}
        self._given: dict[int, tuple[int, Portion]] = {}
        self._sharing: set[int] = set()  # workers that have, or had, a part of this epoch

    def join(self, worker: int) -> None:
        """Give the worker a part from the next epoch on; until then it takes over from others."""
        self._queues.setdefault(worker, deque())

    def leave(self, worker: int) -> None:
        """Give everybody what the worker has not begun. What it has begun stays its own until `again` or `used`."""
        self._again.extend(portion for portion in self._queues.pop(worker, ()) if portion.end > portion.start)
        self.offered += 1
        self._sharing.discard(worker)

    def next(self, worker: int, now: float = 0.0) -> Portion | None:
        """The portion that `take` would give the worker now."""
        found = self._find(worker)
        if found is None:
            return None
        queue, victim = found
        return queue[0] if victim is None else queue[-1]

    def offers(self, worker: int, now: float = 0.0) -> bool:
        """Whether there is something for the worker now."""
        return bool(self._find(worker))

    def take(self, worker: int, now: float = 0.0) -> Taken | None:
        """Give the worker its next portion; None if there is none (now, or ever: see `exhausted`)."""
        found = self._find(worker)
        if found is None:
            return None
        queue, victim = found
        portion = queue.popleft() if victim is None else queue.pop()
        self._given[portion.number] = (worker, portion)
        return Taken(portion, victim)

    def used(self, portions: Iterable[Portion]) -> None:
        """Samples of these portions are in an update: they are not handed out again in this epoch."""
        for portion in portions:
            self._given.pop(portion.number, None)

    def again(self, portions: Iterable[Portion], worker: int = -1) -> None:
        """Hand out these portions again to whoever asks next: nothing came of them."""
        for portion in portions:
            if self._given.pop(portion.number, None) and portion.end > portion.start:
                self._again.append(portion)
        self.offered += 1

    @property
    def exhausted(self) -> bool:
        """Whether nothing will ever be given out again, unless it comes `again`."""
        return not (self._more or self._again or any(self._queues.values()))

    def left(self) -> RemainingSamples:
        """The samples that are not used, for a checkpoint of any number of workers."""
        waiting = [*self._again, *(portion for queue in self._queues.values() for portion in queue)]
        waiting += [portion for _, portion in self._given.values()]
        ranges = [(portion.epoch, portion.start, portion.end) for portion in waiting] + self._undealt
        if self._epoch:  # beyond the end of this run, which may be further when it is resumed
            ranges.append((self._epoch - 1, self._dealable(self._epoch - 1), self.plan.epochs.samples))
        return RemainingSamples(self._epoch, list(joined_ranges(sorted(ranges))))

    def _find(self, worker: int) -> tuple[deque[Portion], int | None] | None:
        """The queue that is the worker's turn, and from whose end to take if it is another's."""
        own = self._queues.get(worker)
        if own is None:
            return None
        if self._again and not (own and own[0].epoch < self._again[0].epoch):
            return self._again, None
        if not own and self.plan.steals:
            victim = max(self._queues, key=lambda other: len(self._queues[other]))
            # while there is more to deal, the last one is its owner's, who is about to begin it
            if len(self._queues[victim]) > self._more:
                return self._queues[victim], victim
        if not own and self._epoch_is_over():
            self._deal()
        return (own, None) if own else None

    @property
    def _more(self) -> bool:
        return bool(self._undealt or self._dealable(self._epoch))

    def _epoch_is_over(self) -> bool:
        if self.plan.epoch_share is None:
            return True
        busy = {worker for worker, _ in self._given.values()}
        finished = sum(not self._queues[worker] and worker not in busy for worker in self._sharing)
        return finished >= ceil(self.plan.epoch_share * len(self._sharing))

    def _deal(self) -> None:
        """Deal what was left over, or else the next epoch, to all who are here."""
        self._sharing = set(self._queues)
        ranges, self._undealt = self._undealt, []
        end = self._dealable(self._epoch)
        if not ranges and end:
            ranges = [(self._epoch, 0, end)]
            self._epoch += 1
        if self.plan.epoch_share is not None:
            ranges = self._collected() + ranges
        for span in ranges:
            for batch in _batches(*span, self.plan.epochs.batch_size):
                self._deal_batch(*batch)

    def _collected(self) -> list[tuple[int, int, int]]:
        """Collect what is left over of an epoch that is over."""
        waiting = [portion for queue in self._queues.values() for portion in queue]
        for queue in self._queues.values():
            queue.clear()
        self.left_over += sum(portion.end - portion.start for portion in waiting)
        return list(joined_ranges(sorted((portion.epoch, portion.start, portion.end) for portion in waiting)))

    def _deal_batch(self, epoch: int, start: int, end: int) -> None:
        """Cut one batch, or what is left of it, in a portion for each worker."""
        workers = sorted(self._queues)
        size, whole = end - start, self.plan.epochs.batch_size
        self.offered += 1
        if not self.plan.in_step:  # small rests are not cut any smaller
            workers.sort(key=lambda worker: len(self._queues[worker]))
            workers, whole = workers[: ceil(size / ceil(whole / len(workers)))], 0
        for place, worker in enumerate(workers):
            self._numbers += 1
            own = SampleShare(place, len(workers)).run(size, whole)
            self._queues[worker].append(Portion(self._numbers, epoch, start + own.start, start + own.stop))

    def _dealable(self, epoch: int) -> int:
        """Samples of this epoch that the run is to learn from."""
        return self.plan.dealable(epoch)


def _batches(epoch: int, start: int, end: int, size: int) -> Iterator[tuple[int, int, int]]:
    """Cut samples where global batches end."""
    while start < end:
        stop = min(end, (start // size + 1) * size)
        yield epoch, start, stop
        start = stop


def joined_ranges(ranges: list[tuple[int, int, int]]) -> Iterator[tuple[int, int, int]]:
    """Sorted ranges, neighbours made one."""
    held: tuple[int, int, int] | None = None
    for epoch, start, end in ranges:
        if start == end:
            continue
        if held is not None and (held[0], held[2]) == (epoch, start):
            held = (epoch, held[1], end)
            continue
        if held is not None:
            yield held
        held = (epoch, start, end)
    if held is not None:
        yield held
