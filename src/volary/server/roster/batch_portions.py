"""Portions of one batch after the other, for whoever is free, and what of a batch is in: each sample counts once.

The last portions of a batch are handed out again to workers that have nothing else to do, as copies; of a portion and
its copy the first that is done counts (backup tasks: Dean & Ghemawat, OSDI 2004; Dean et al., NIPS 2012).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median

from volary.server.protocol.updates import Contribution, Portion
from volary.server.roster.closing import DueUpdate
from volary.server.roster.portions import PortionPlan, RemainingSamples, Taken, joined_ranges
from volary.server.roster.snapshot import cut_evenly

SLOW = 1.5  # times what portions usually take, after which one is handed out again
SEEN = 64  # portions whose times say what is usual


@dataclass
class _Open:
    """A portion of the batch at hand that somebody has been given. holders: who computes it, since when."""

    portion: Portion
    holders: dict[int, float] = field(default_factory=dict)
    done: bool = False


class BatchPortions:
    """A run's samples, as `volary.server.roster.portions.Portions` deals them out, but a batch at a time.

    pieces: that a batch is cut in. copies: slow ones are handed out twice. No portion of the next batch is given before
    all of this one are `used`.
    """

    left_over = 0

    def __init__(self, plan: PortionPlan, pieces: int, *, copies: bool, left: RemainingSamples | None = None) -> None:
        self.plan = plan
        self.offered = self._numbers = 0
        self._pieces, self._copies = pieces, copies
        self._epoch = left.epoch if left else 0
        ranges = [(epoch, start, min(end, self._dealable(epoch))) for epoch, start, end in left.ranges] if left else []
        self._undealt = deque((epoch, start, end) for epoch, start, end in ranges if start < end)
        self._waiting: deque[Portion] = deque()
        self._open: dict[int, _Open] = {}
        self._took_s: deque[float] = deque(maxlen=SEEN)
        self._here: set[int] = set()

    def join(self, worker: int) -> None:
        """Let the worker take portions."""
        self._here.add(worker)

    def leave(self, worker: int) -> None:
        """Give the worker nothing more. What it has begun stays its own until `again` or `used`."""
        self._here.discard(worker)
        self.offered += 1

    def next(self, worker: int, now: float = 0.0) -> Portion | None:
        """The portion that `take` would give the worker; now: seconds of a monotonic clock."""
        if worker not in self._here:
            return None
        if not self._waiting and not self._open:
            self._deal()
        if self._waiting:
            return self._waiting[0]
        return self._slowest(worker, now)

    def offers(self, worker: int, now: float = 0.0) -> bool:
        """Whether there is something for the worker now."""
        return self.next(worker, now) is not None

    def take(self, worker: int, now: float = 0.0) -> Taken | None:
        """Give the worker its next portion, which may be a copy; None if there is none now."""
        portion = self.next(worker, now)
        if portion is None:
            return None
        if self._waiting:
            self._waiting.popleft()
        self._open.setdefault(portion.number, _Open(portion)).holders[worker] = now
        return Taken(portion, None)

    def finished(self, portions: Iterable[Portion], worker: int, now: float) -> bool:
        """The worker has done these portions. False: they were done before, by another one."""
        first = False
        for one in [self._open[portion.number] for portion in portions if portion.number in self._open]:
            began_at = one.holders.pop(worker, now)
            if not one.done:
                one.done = first = True
                self._took_s.append(now - began_at)
        return first

    @property
    def whole(self) -> bool:
        """Whether all portions of the batch at hand are done."""
        return bool(self._open) and not self._waiting and all(one.done for one in self._open.values())

    def used(self, portions: Iterable[Portion]) -> None:
        """Samples of these portions are in an update: they are not handed out again in this epoch."""
        for portion in portions:
            self._open.pop(portion.number, None)
        self.offered += 1

    def again(self, portions: Iterable[Portion], worker: int) -> None:
        """Hand out again what the worker was given and will not do, unless another one does, or has done."""
        for one in [self._open[portion.number] for portion in portions if portion.number in self._open]:
            one.holders.pop(worker, None)
            if not one.done and not one.holders:
                del self._open[one.portion.number]
                self._waiting.appendleft(one.portion)
        self.offered += 1

    @property
    def exhausted(self) -> bool:
        """Whether nothing will ever be given out again, unless it comes `again`."""
        return not (self._undealt or self._waiting or self._dealable(self._epoch))

    def left(self) -> RemainingSamples:
        """The samples that are not used, for a checkpoint of any number of workers."""
        waiting = [*self._waiting, *(one.portion for one in self._open.values())]
        ranges = [(portion.epoch, portion.start, portion.end) for portion in waiting] + list(self._undealt)
        if self._epoch:  # beyond the end of this run, which may be further when it is resumed
            ranges.append((self._epoch - 1, self._dealable(self._epoch - 1), self.plan.epochs.samples))
        return RemainingSamples(self._epoch, list(joined_ranges(sorted(ranges))))

    def _slowest(self, worker: int, now: float) -> Portion | None:
        """The portion that has been computed for longest, if that is unusual, and the worker has nothing to do."""
        going_on = [one for one in self._open.values() if not one.done]
        if not self._copies or not self._took_s or any(worker in one.holders for one in going_on):
            return None
        alone = [(min(one.holders.values()), one.portion.number) for one in going_on if len(one.holders) == 1]
        since, number = min(alone, default=(now, 0))
        return self._open[number].portion if now - since > SLOW * median(self._took_s) else None

    def _deal(self) -> None:
        """Cut the next batch, or what is left of it, in portions."""
        if not self._undealt and (end := self._dealable(self._epoch)):
            self._undealt.append((self._epoch, 0, end))
            self._epoch += 1
        if not self._undealt:
            return
        epoch, start, end = self._undealt.popleft()
        stop = min(end, self.plan.epochs.batch_at(start).stop)
        if stop < end:
            self._undealt.appendleft((epoch, stop, end))
        for first, last in cut_evenly(stop - start, self._pieces):
            self._numbers += 1
            self._waiting.append(Portion(self._numbers, epoch, start + first, start + last))
        self.offered += 1

    def _dealable(self, epoch: int) -> int:
        """Samples of this epoch that the run is to learn from."""
        return self.plan.dealable(epoch)


class BatchGathering:
    """Gathers contributions until a batch is whole: then they are an update, in the order of its samples.

    So it is the same sum whoever computed which portion, and whenever.
    """

    def __init__(self, portions: BatchPortions) -> None:
        self._portions = portions
        self._in: list[Contribution] = []
        self._left_out: list[Contribution] = []

    def take(
        self, due: Sequence[DueUpdate], portions_of: Mapping[Contribution, Sequence[Portion]], now: float
    ) -> list[DueUpdate]:
        """The update that is due by these contributions, if one is. portions_of: of all that have begun."""
        for each in due:
            for contribution in (*each.contributions, *each.left_out):
                if self._portions.finished(portions_of[contribution], contribution.worker, now):
                    (self._in if contribution in each.contributions else self._left_out).append(contribution)
        if not self._portions.whole:
            return []
        self._in.sort(key=lambda one: portions_of[one][0].start)
        mine = {*self._in, *self._left_out}
        copies = tuple(sorted(one for one in portions_of if one not in mine))
        update = DueUpdate(tuple(self._in), dropped=copies, left_out=tuple(self._left_out))
        self._in, self._left_out = [], []
        return [update]
