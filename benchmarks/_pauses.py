"""A small network for MNIST whose forward pauses, as if the worker were slower, or held up now and then."""

from __future__ import annotations

import os
import random
import time

from torch import Tensor, nn


def small(classes: int, pause_s: float = 0.0, slow: int | None = None, chance: float = 0.0, seed: int = 0) -> nn.Module:
    """Images (batch, 1, 28, 28) to (batch, classes): 60 thousand parameters.

    pause_s: of each training step of rank `slow`, or of any step of any rank with probability `chance`.
    """
    rank = int(os.environ.get("RANK", "0"))
    network = nn.Sequential(
        nn.Conv2d(1, 32, 5),
        nn.MaxPool2d(2),
        nn.ReLU(),
        nn.Conv2d(32, 32, 5),
        nn.MaxPool2d(2),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(32 * 4 * 4, 64),
        nn.ReLU(),
        nn.Linear(64, classes),
        _Pauses(pause_s, 1.0 if rank == slow else chance, random.Random(f"{seed} {rank}")),
    )
    for layer in network:
        if isinstance(layer, nn.Conv2d | nn.Linear):
            nn.init.xavier_uniform_(layer.weight)
            assert layer.bias is not None
            nn.init.zeros_(layer.bias)
    return network


class _Pauses(nn.Module):
    """Sleeps at the end of forward: what the step computes with has been read, and its gradients have yet to leave."""

    def __init__(self, pause_s: float, chance: float, dice: random.Random) -> None:
        super().__init__()
        self._pause_s, self._chance, self._dice = pause_s, chance, dice

    def forward(self, x: Tensor) -> Tensor:
        """x: handed on."""
        if self.training and self._dice.random() < self._chance:
            time.sleep(self._pause_s)
        return x
