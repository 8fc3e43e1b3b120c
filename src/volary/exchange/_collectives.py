"""Collectives that are waited for at once, outside a step's exchange. A peer that goes meanwhile is a PeerLost."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import msgspec
import torch
from torch import distributed

from volary.comm.peers import peers_needed

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


def gather_plain(value: Any, world_size: int) -> list[Any]:
    """Every rank's `value`, of what JSON knows, by rank. Nothing but the ranks themselves is needed for it."""
    if world_size == 1:
        return [value]
    own = torch.frombuffer(bytearray(msgspec.json.encode(value)), dtype=torch.uint8)
    sizes = gather(torch.tensor([own.numel()]), world_size).flatten().tolist()
    padded = torch.zeros(max(sizes), dtype=torch.uint8)
    padded[: own.numel()] = own
    everybody = gather(padded, world_size)
    return [msgspec.json.decode(bytes(row[:size].tolist())) for row, size in zip(everybody, sizes, strict=True)]


def by_torch(values: Tensor) -> None:
    """Give all ranks rank 0's `values`, by the collective of the default group's backend."""
    with peers_needed():
        distributed.broadcast(values, src=0)


def take_from_first(tensor: Tensor, broadcast: Callable[[Tensor], None] = by_torch) -> None:
    """Give `tensor` rank 0's values, bit for bit, in place; any type and layout. broadcast: of bytes, from rank 0."""
    values = tensor.detach()
    whole = values.contiguous()
    broadcast(_bytes(whole))
    if whole.data_ptr() != values.data_ptr() and distributed.get_rank() != 0:
        values.copy_(whole)


def take_all_from_first(tensors: Sequence[Tensor], broadcast: Callable[[Tensor], None] = by_torch) -> None:
    """Give these tensors rank 0's values, bit for bit, in place and in one message; on one device."""
    if len(tensors) == 1:
        take_from_first(tensors[0], broadcast)
        return
    if not tensors:
        return
    parts = [_bytes(tensor.detach().contiguous()) for tensor in tensors]
    together = torch.cat(parts)
    broadcast(together)
    if distributed.get_rank() == 0:  # a first forward may be reading them already
        return
    for tensor, part in zip(tensors, torch.split(together, [part.numel() for part in parts]), strict=True):
        # cloned: a view as a wider type must begin where such a value may
        tensor.detach().copy_(part.clone().view(tensor.dtype).view(tensor.shape))


def _bytes(values: Tensor) -> Tensor:
    """As bytes: gloo does not know every type."""
    return values.view(-1).view(torch.uint8)
