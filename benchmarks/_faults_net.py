"""A small network whose step takes 20 ms. On rank 1 something happens once there is a file called as that is."""

from __future__ import annotations

import ctypes
import os
import time
from pathlib import Path

import psutil
import torch
from torch import Tensor, nn

SUFFERS = os.environ.get("VOLARY_RANK") == "1"
SLOW_S = 0.1  # a step
NOWHERE = bytes(16)  # a struct sockaddr of the family AF_UNSPEC


class Net(nn.Module):
    """Two layers."""

    def __init__(self, classes: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, classes))

    def forward(self, x: Tensor) -> Tensor:
        """Logits, after a while."""
        time.sleep(0.02)
        if SUFFERS:
            _suffer()
        found: Tensor = self.layers(x)
        return found


def _suffer() -> None:
    while Path("hang").exists():
        torch.zeros(1)
    if Path("slow").exists():
        time.sleep(SLOW_S)
    if Path("reset").exists():
        Path("reset").unlink()
        _reset_connections()


def _reset_connections() -> None:
    """Break the connections to the driver, as a firewall that forgets them does."""
    port = int(os.environ["VOLARY_MEET"].rpartition(":")[2])
    for one in psutil.Process().net_connections("tcp"):
        if one.raddr and one.raddr.port == port:
            ctypes.CDLL(None).connect(one.fd, NOWHERE, len(NOWHERE))
