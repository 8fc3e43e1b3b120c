"""Votes of all ranks at each step, in a few values that are summed over all of them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from volary.errors import NotFinite

_COMMON = 7  # values that are sums over all ranks; after them one for each rank, or two where speeds are voted on
_PLACES = 1 << 22  # that a rank tells apart: with a bit beside it, whole in fp32


@dataclass(frozen=True)
class Vote:
    """A rank's account of its contribution to all others.

    loss: its share of the global batch's mean. busy: something in it counts. ending: it was asked to end after it.
    lost: samples of its share that could not be read. step_s: seconds that each of its steps took. weight: of a
    difference of parameters, its share of what all learnt from meanwhile. requests: of rank 0, how many all can read.
    place: counts what a rank's own loop has done; the same on all ranks that are at the same place of it. counted: what
    its loss is a mean over, in samples. sample_s: seconds that it computed for a sample in the step before; 0: unknown.
    """

    loss: float
    busy: bool
    ending: bool
    lost: int = 0
    step_s: float = 0.0
    weight: float = 1.0
    requests: int = 0
    place: int = 0
    counted: float = 0.0
    sample_s: float = 0.0


@dataclass(frozen=True)
class Agreed:
    """The same on every rank. loss: mean over the global batch. ending: somebody was asked to end after this step.

    busy: how many ranks had something that counts. not_finite: ranks whose share of the loss is not finite. lost:
    samples of the global batch that could not be read. step_s: seconds that a step took, the mean of all ranks.
    requests: how many of the run's are to be done after this step, at least. apart: ranks are at different places of
    their loops. counted: what of the global batch the mean is over, in samples. sample_s: of each rank, if speeds are
    voted on.
    """

    loss: float
    ending: bool
    busy: int
    not_finite: tuple[int, ...]
    lost: int = 0
    step_s: float = 0.0
    requests: int = 0
    apart: bool = False
    counted: float = 0.0
    sample_s: Sequence[float] = ()

    def scale(self, divisor: float) -> float:
        """The factor of sums that ranks divided by `divisor`, and that are to be the mean over what counted."""
        return divisor / self.counted if self.counted else 1.0


def size(world_size: int, *, speeds: bool) -> int:
    """How many values of a vote travel, in a run of so many workers. speeds: these are voted on, too."""
    return _COMMON + world_size * (1 + speeds)


def cast(vote: Vote, rank: int, world_size: int, *, speeds: bool = False) -> list[float]:
    """A rank's vote in values that can be read once they are summed over all ranks."""
    finite = math.isfinite(vote.loss)
    loss = vote.loss if finite else 0.0
    common = [loss, vote.ending, vote.busy, vote.lost, vote.step_s, vote.requests, vote.counted]
    own = [float(2 * (vote.place % _PLACES) + (not finite))] + [vote.sample_s] * speeds
    each = [value if other == rank else 0.0 for value in own for other in range(world_size)]
    return [float(value) for value in common] + each


def read(summed: list[float], world_size: int) -> Agreed:
    """Read the votes of all ranks out of their sum."""
    loss, ending, busy, lost, seconds, requests, counted, *each = summed
    places, sample_s = each[:world_size], tuple(each[world_size:])
    bad = tuple(rank for rank, vote in enumerate(places) if vote % 2)
    mean = math.nan if bad else loss
    apart = len({vote // 2 for vote in places}) > 1
    step_s = seconds / world_size
    return Agreed(mean, ending > 0, round(busy), bad, round(lost), step_s, round(requests), apart, counted, sample_s)


def not_finite(ranks: tuple[int, ...], step: int, origin: str = "", checkpoint: str = "") -> NotFinite:
    """Make the error for a loss of `ranks` that is not finite. origin: where that comes from, as far as is known."""
    where, good = f", {origin}" if origin else "", f"; last good checkpoint: {checkpoint}" if checkpoint else ""
    *first, last = map(str, ranks)
    whose = f"ranks {', '.join(first)} and {last}" if first else f"rank {last}"
    return NotFinite(f"the loss of {whose} is NaN or infinite at step {step}{where}{good}")
