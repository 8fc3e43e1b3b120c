"""One worker's share of one step's samples."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import torch
from torch import Tensor


@dataclass(frozen=True, eq=False)
class Batch:
    """Inputs (count, ...) and targets (count, ...) of this worker; count may be 0, and the step still happens."""

    inputs: Tensor
    targets: Tensor
    total: int  # samples of the step over all workers; at least 1
    epoch: int  # from 0
    step_in_epoch: int  # from 0; of several that a larger batch stands for, the last
    ends_epoch: bool  # the epoch's last batch
    lost: int = 0  # samples of this share that could not be read
    scale: Callable[[Tensor], Tensor] | None = None  # what makes inputs of `inputs`, on the device; None: they are

    @property
    def count(self) -> int:
        """The number of samples in this share."""
        return self.inputs.shape[0]

    @property
    def weight(self) -> float:
        """This share's part of the step: count / total. A mean over the share, times this, sums to the step's mean."""
        return self.count / self.total

    def parts(self, pieces: int) -> Iterator[Batch]:
        """The share in up to `pieces` pieces, none empty unless the share is; their weights sum to ours."""
        pieces = max(1, min(pieces, self.count))
        if pieces == 1:
            yield self
            return
        for inputs, targets in zip(self.inputs.tensor_split(pieces), self.targets.tensor_split(pieces), strict=True):
            yield replace(self, inputs=inputs, targets=targets)

    def to(self, device: torch.device) -> Batch:
        """The same on `device`, where bytes become values: a quarter of the values' bytes travels."""
        inputs = self.inputs.to(device)
        if self.scale is None and inputs is self.inputs:
            return self
        return replace(
            self,
            inputs=self.scale(inputs) if self.scale else inputs,
            targets=self.targets.to(device),
            scale=None,
        )
