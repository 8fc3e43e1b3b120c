"""A rank of a route, over the group that a test's workers have joined."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from volary.comm.groups.group import Group
from volary.comm.routes import ROOM
from volary.comm.sums.route import BufferShape, Route
from volary.comm.topology.topology import Topology


def shape(numel: int, dtype: torch.dtype = torch.float32) -> BufferShape:
    return BufferShape(numel, dtype, torch.device("cpu"))


def route(name: str, group: Group, shapes: Sequence[BufferShape], topology: Topology) -> Route:
    found: Route = ROOM.load(name)().build(group, shapes, topology)
    return found
