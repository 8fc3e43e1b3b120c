"""A small network that takes a time for each sample: a device that computes by itself.

It waits, and uses no core, so that several such devices fit beside each other on a machine with few.
"""

from __future__ import annotations

import os
import time

from torch import Tensor, nn


class Net(nn.Module):
    """Two layers. sample_s: seconds that a sample takes; slower: times as many on the last of four workers."""

    def __init__(self, classes: int, sample_s: float, slower: int = 1) -> None:
        super().__init__()
        self.sample_s = sample_s * (slower if os.environ.get("VOLARY_RANK") == "3" else 1)
        self.layers = nn.Sequential(nn.Linear(256, 64), nn.ReLU(), nn.Linear(64, classes))

    def forward(self, x: Tensor) -> Tensor:
        """Logits, after a while."""
        if self.training:
            time.sleep(self.sample_s * len(x))
        found: Tensor = self.layers(x)
        return found
