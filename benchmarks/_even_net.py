"""A small network that takes 5 ms for each sample: a device that computes by itself.

It waits, and uses no core, so that several such devices fit beside each other on a machine with few.
"""

from __future__ import annotations

import time

from torch import Tensor, nn

SAMPLE_S = 0.005


class Net(nn.Module):
    """Two layers."""

    def __init__(self, classes: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(256, 64), nn.ReLU(), nn.Linear(64, classes))

    def forward(self, x: Tensor) -> Tensor:
        """Logits, after a while."""
        if self.training:
            time.sleep(SAMPLE_S * len(x))
        found: Tensor = self.layers(x)
        return found
