"""What ranks agree on with each step, in a few values that are summed over all of them."""

from __future__ import annotations

import math
from dataclasses import dataclass

from volary.errors import NotFinite


@dataclass(frozen=True)
class Agreed:
    """The same on every rank. loss: mean over the global batch. ending: somebody was asked to end after this step.

    busy: how many ranks had samples. not_finite: ranks whose share of the loss is not finite. lost: samples of the
    global batch that could not be read: they count in the mean's divisor, which `scale` puts right.
    """

    loss: float
    ending: bool
    busy: int
    not_finite: tuple[int, ...]
    lost: int = 0

    def scale(self, total: int) -> float:
        """The factor of sums over a batch of `total` samples that makes them means over those that were read."""
        return total / (total - self.lost) if 0 < self.lost < total else 1.0


def size(world_size: int) -> int:
    """How many values travel."""
    return 4 + world_size


def cast(loss: float, *, busy: bool, ending: bool, rank: int, world_size: int, lost: int = 0) -> list[float]:
    """This rank's votes; summed over all ranks they can be read. loss: this rank's share of the global mean."""
    finite = math.isfinite(loss)
    votes = [loss if finite else 0.0, float(ending), float(busy), float(lost)] + [0.0] * world_size
    votes[4 + rank] = 0.0 if finite else 1.0
    return votes


def read(summed: list[float]) -> Agreed:
    """What the votes say once they are summed."""
    loss, ending, busy, lost, *not_finite = summed
    bad = tuple(rank for rank, vote in enumerate(not_finite) if vote)
    return Agreed(math.nan if bad else loss, ending > 0, round(busy), bad, round(lost))


def not_finite(ranks: tuple[int, ...], step: int, origin: str = "", checkpoint: str = "") -> NotFinite:
    """What to raise where the loss of `ranks` is not finite. origin: where that comes from, as far as is known."""
    where, good = f", {origin}" if origin else "", f"; last good checkpoint: {checkpoint}" if checkpoint else ""
    return NotFinite(f"the loss of rank {', '.join(map(str, ranks))} is NaN or infinite at step {step}{where}{good}")
