"""A small network whose step takes 20 ms, and which hangs on rank 1 once there is a file called `hang`."""

from __future__ import annotations

import os
import time
from pathlib import Path

import torch
from torch import Tensor, nn

HANGS = os.environ.get("VOLARY_RANK") == "1"


class Net(nn.Module):
    """Two layers."""

    def __init__(self, classes: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, classes))

    def forward(self, x: Tensor) -> Tensor:
        """Logits, after a while."""
        time.sleep(0.02)
        while HANGS and Path("hang").exists():
            torch.zeros(1)
        found: Tensor = self.layers(x)
        return found
