"""Collectives that are waited for at once, outside a step's exchange. A peer that goes meanwhile is a PeerLost."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import distributed

from volary.exchange._peers import peers_needed

if TYPE_CHECKING:
    from torch import Tensor


def add_up(tensor: Tensor) -> None:
    """Make `tensor` the sum over all ranks, in place."""
    with peers_needed():
        distributed.all_reduce(tensor)


def gather(tensor: Tensor, world_size: int) -> Tensor:
    """Every rank's `tensor` (...) by rank: (world_size, ...)."""
    everybody = [torch.empty_like(tensor) for _ in range(world_size)]
    with peers_needed():
        distributed.all_gather(everybody, tensor)
    return torch.stack(everybody)


def take_from_first(tensor: Tensor) -> None:
    """Give `tensor` rank 0's values, bit for bit, in place; any type and layout."""
    values = tensor.detach()
    whole = values.contiguous()
    with peers_needed():
        distributed.broadcast(whole.view(-1).view(torch.uint8), src=0)  # as bytes: gloo does not know every type
    if whole.data_ptr() != values.data_ptr():
        values.copy_(whole)
