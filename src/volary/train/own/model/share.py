"""The weight of a worker's gradients, or of its own changes of parameters."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

from volary.train.agreement.votes import Vote


@dataclass
class Share:
    """This worker's part of the step's samples. weight: of its gradients. epoch: how far, once the step is done.

    total: samples of all workers; 0 where they are not fed by `worker.feed`. ends_epoch: it is an epoch's last step.
    seen: samples of all steps so far, this one included, of all workers. batches: that `worker.feed` has given out.
    """

    weight: float
    samples: int = 0
    total: int = 0
    epoch: float = 0.0
    ends_epoch: bool = False
    seen: int = 0
    batches: int = 0


@dataclass
class AveragingPeriod:
    """Steps of one's own between two means of all workers' parameters. samples: this worker's; total: of all."""

    steps: int = 0
    samples: int = 0
    total: int = 0
    began_s: float = field(default_factory=time.perf_counter)

    def add(self, share: Share) -> None:
        """Count the samples of one step more."""
        self.steps += 1
        self.samples, self.total = self.samples + share.samples, self.total + share.total

    def vote(self, *, ending: bool, world_size: int, place: int) -> Vote:
        """This worker's part of the mean."""
        weight = self.samples / self.total if self.total else 1 / world_size
        step_s = (time.perf_counter() - self.began_s) / self.steps
        return Vote(0.0, True, ending, step_s=step_s, weight=weight, place=place)
