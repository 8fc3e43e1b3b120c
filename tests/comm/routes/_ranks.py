"""What a route needs of a rank, over the group that a test's workers have joined."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch.distributed.distributed_c10d import _get_default_store

from volary.comm.routes import ROOM
from volary.comm.routes._base import Route, Shape
from volary.comm.topology import Topology
from volary.train.bulletin import Bulletin


def shape(numel: int, dtype: torch.dtype = torch.float32) -> Shape:
    return Shape(numel, dtype, torch.device("cpu"))


def bulletin(rank: int, world_size: int, life: int = 0) -> Bulletin:
    """In the group's store; another life sees nothing of this one."""
    return Bulletin(_get_default_store(), rank, world_size, life)


def route(name: str, rank: int, world_size: int, shapes: Sequence[Shape], topology: Topology, life: int = 0) -> Route:
    found: Route = ROOM.load(name)().build(bulletin(rank, world_size, life), shapes, topology)
    return found
