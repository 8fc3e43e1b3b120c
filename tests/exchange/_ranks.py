"""What the exchange needs of a rank, over the group that a test's workers have joined."""

from __future__ import annotations

import torch
from torch.distributed.distributed_c10d import _get_default_store

from volary.exchange._base import Shape
from volary.train.bulletin import Bulletin


def shape(numel: int) -> Shape:
    return Shape(numel, torch.float32, torch.device("cpu"))


def bulletin(rank: int, world_size: int, life: int = 0) -> Bulletin:
    """In the group's store; another life sees nothing of this one."""
    return Bulletin(_get_default_store(), rank, world_size, life)
