"""Counts of one worker's contribution: its batches, samples and losses."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from volary.train.agreement.votes import Vote

if TYPE_CHECKING:
    from volary.consistency._base import Action
    from volary.data.batching.batch import Batch
    from volary.train.coordinator import MicroBatch


@dataclass
class ContributionTally:
    """Counts what a contribution is learnt from so far. samples, lost and counted: this worker's.

    counted: what losses are means over, in samples. divisor: of what travels, the same on all workers: all their
    samples, as nobody knows yet how much of those counts; a worker alone knows. locally: this worker updates its own
    parameters meanwhile. own_loss: of the batch that a loss was added of last, the mean over this worker's share of it,
    or that share's part in the mean over all workers; None: there was none.
    """

    batches: int = 0
    samples: int = 0
    lost: int = 0
    counted: float = 0.0
    divisor: float = 0.0
    locally: bool = False
    own_loss: float | None = None
    voted: bool = False
    _of_next: bool = True  # the next loss is of another batch
    _sum: float = 0.0  # of losses, over what counted
    _began_s: float = field(default_factory=time.perf_counter)

    def begin(self, batch: Batch, counted: float, divisor: float, action: Action) -> None:
        """Count a batch that was read: its samples, those of them that could not be read, and what of it counts."""
        self.batches, self.samples, self.lost = self.batches + 1, self.samples + batch.count, self.lost + batch.lost
        self.counted, self.divisor = self.counted + counted, self.divisor + divisor
        self.locally = action.updates

    def add(self, part: MicroBatch, loss: float) -> None:
        """Add the loss of one micro-batch, with its weight in the batch."""
        before = 0.0 if self._of_next or self.own_loss is None else self.own_loss
        self.own_loss = before + loss * part.weight
        self._sum += loss * part.counted
        self._of_next = part.updates or part.last

    def vote(self, *, ending: bool, requests: int, sample_s: float) -> Vote:
        """This worker's part of what all agree on."""
        self.voted = True
        divisor = self.divisor or 1.0  # alone, and nothing counts
        loss = self._sum / divisor if self.locally else self.own_loss or 0.0
        return Vote(
            loss,
            busy=self.counted > 0,
            ending=ending,
            lost=self.lost,
            step_s=(time.perf_counter() - self._began_s) / self.batches,
            weight=self.counted / divisor,
            requests=requests,
            counted=self.counted,
            sample_s=sample_s,
        )
