"""A worker's part of a step's samples."""

from __future__ import annotations

from dataclasses import dataclass


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
