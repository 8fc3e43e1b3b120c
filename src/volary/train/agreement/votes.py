"""Votes of all ranks at each step, in a few values that are summed over all of them."""

from __future__ import annotations

import math
from dataclasses import dataclass

from volary.errors import NotFinite

_COMMON = 6  # values that are sums over all ranks; after them one for each rank
_PLACES = 1 << 22  # that a rank tells apart: with a bit beside it, whole in fp32


@dataclass(frozen=True)
class Vote:
    """What a rank says of its contribution.

    loss: its share of the global batch's mean. busy: it has samples in it. ending: it was asked to end after it. lost:
    samples of its share that could not be read. step_s: seconds that each of its steps took. weight: of a difference of
    parameters, its share of the samples that all learnt from meanwhile. requests: of rank 0, how many all can read.
    place: counts what a rank's own loop has done; the same on all ranks that are at the same place of it.
    """

    loss: float
    busy: bool
    ending: bool
    lost: int = 0
    step_s: float = 0.0
    weight: float = 1.0
    requests: int = 0
    place: int = 0


@dataclass(frozen=True)
class Agreed:
    """The same on every rank. loss: mean over the global batch. ending: somebody was asked to end after this step.

    busy: how many ranks had samples. not_finite: ranks whose share of the loss is not finite. lost: samples of the
    global batch that could not be read: they count in the mean's divisor, which `scale` puts right. step_s: seconds
    that a step took, the mean of all ranks. requests: how many of the run's are to be done after this step, at least.
    apart: ranks are at different places of their loops.
    """

    loss: float
    ending: bool
    busy: int
    not_finite: tuple[int, ...]
    lost: int = 0
    step_s: float = 0.0
    requests: int = 0
    apart: bool = False

    def scale(self, total: int) -> float:
        """The factor of sums over a batch of `total` samples that makes them means over those that were read."""
        return total / (total - self.lost) if 0 < self.lost < total else 1.0


def size(world_size: int) -> int:
    """How many values of a vote travel, in a run of so many workers."""
    return _COMMON + world_size


def cast(vote: Vote, rank: int, world_size: int) -> list[float]:
    """A rank's vote in values that can be read once they are summed over all ranks."""
    finite = math.isfinite(vote.loss)
    common = [vote.loss if finite else 0.0, vote.ending, vote.busy, vote.lost, vote.step_s, vote.requests]
    own = float(2 * (vote.place % _PLACES) + (not finite))
    return [float(value) for value in common] + [own if other == rank else 0.0 for other in range(world_size)]


def read(summed: list[float]) -> Agreed:
    """What the votes say once they are summed."""
    loss, ending, busy, lost, seconds, requests, *each = summed
    bad = tuple(rank for rank, vote in enumerate(each) if vote % 2)
    mean = math.nan if bad else loss
    apart = len({vote // 2 for vote in each}) > 1
    return Agreed(mean, ending > 0, round(busy), bad, round(lost), seconds / len(each), round(requests), apart)


def not_finite(ranks: tuple[int, ...], step: int, origin: str = "", checkpoint: str = "") -> NotFinite:
    """What to raise where the loss of `ranks` is not finite. origin: where that comes from, as far as is known."""
    where, good = f", {origin}" if origin else "", f"; last good checkpoint: {checkpoint}" if checkpoint else ""
    return NotFinite(f"the loss of rank {', '.join(map(str, ranks))} is NaN or infinite at step {step}{where}{good}")
