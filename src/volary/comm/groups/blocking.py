"""Collectives outside a step's exchange, most of them waited for at once. A peer that goes meanwhile is a PeerLost."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import msgspec
import torch
from torch import distributed

from volary.comm.groups.peers import peers_needed
from volary.sharding.groups import LEADER

if TYPE_CHECKING:
    from torch import Tensor

    from volary.comm.groups.group import Group


def add_up(tensor: Tensor, group: Group) -> None:
    """Make `tensor`, of any shape, the sum over all ranks of `group`, in place."""
    with peers_needed():
        distributed.all_reduce(tensor, group=group.process_group)


def adding_up(tensor: Tensor, group: Group) -> Callable[[], None]:
    """Begin an `add_up`; call the returned function to wait for it: then `tensor`, of any shape, is the sum."""
    with peers_needed():
        work = distributed.all_reduce(tensor, group=group.process_group, async_op=True)

    def wait() -> None:
        with peers_needed():
            work.wait()

    return wait


def gather(tensor: Tensor, group: Group) -> Tensor:
    """Return every rank's `tensor` (...) by rank: (group.size, ...)."""
    everybody = [torch.empty_like(tensor) for _ in range(group.size)]
    with peers_needed():
        distributed.all_gather(everybody, tensor, group=group.process_group)
    return torch.stack(everybody)


def gather_plain(value: Any, group: Group) -> list[Any]:
    """Return every rank's `value`, of JSON's types, by rank. It needs only the ranks themselves."""
    if group.size == 1:
        return [value]
    own = torch.frombuffer(bytearray(msgspec.json.encode(value)), dtype=torch.uint8)
    sizes = gather(torch.tensor([own.numel()]), group).flatten().tolist()
    padded = torch.zeros(max(sizes), dtype=torch.uint8)
    padded[: own.numel()] = own
    everybody = gather(padded, group)
    return [msgspec.json.decode(bytes(row[:size].tolist())) for row, size in zip(everybody, sizes, strict=True)]


def by_torch(values: Tensor, group: Group) -> None:
    """Give all ranks of `group` rank 0's contiguous `values`, of any shape, by the collective of its backend."""
    with peers_needed():
        distributed.broadcast(values, group=group.process_group, group_src=LEADER)


def from_rank(rank: int, tensor: Tensor, group: Group) -> None:
    """Give contiguous `tensor` the values of `rank`, bit for bit, in place; any shape and type."""
    with peers_needed():
        distributed.broadcast(_bytes(tensor.detach()), group=group.process_group, group_src=rank)


def take_from_first(tensor: Tensor, group: Group, broadcast: Callable[[Tensor], None] | None = None) -> None:
    """Give `tensor` rank 0's values, bit for bit, in place; any shape, type and layout.

    broadcast: of bytes, from rank 0 of the group; None: `by_torch`.
    """
    values = tensor.detach()
    whole = values.contiguous()
    _broadcast(_bytes(whole), group, broadcast)
    if whole.data_ptr() != values.data_ptr() and not group.leads:
        values.copy_(whole)


def take_all_from_first(
    tensors: Sequence[Tensor], group: Group, broadcast: Callable[[Tensor], None] | None = None
) -> None:
    """Give these tensors rank 0's values, bit for bit, in place and in one message; on one device.

    broadcast: as of `take_from_first`.
    """
    if len(tensors) == 1:
        take_from_first(tensors[0], group, broadcast)
        return
    if not tensors:
        return
    parts = [_bytes(tensor.detach().contiguous()) for tensor in tensors]
    together = torch.cat(parts)
    _broadcast(together, group, broadcast)
    if group.leads:  # a first forward may be reading them already
        return
    for tensor, part in zip(tensors, torch.split(together, [part.numel() for part in parts]), strict=True):
        # cloned: a view as a wider type must begin where such a value may
        tensor.detach().copy_(part.clone().view(tensor.dtype).view(tensor.shape))


def _broadcast(values: Tensor, group: Group, broadcast: Callable[[Tensor], None] | None) -> None:
    if broadcast is None:
        by_torch(values, group)
    else:
        broadcast(values)


def _bytes(values: Tensor) -> Tensor:
    """Contiguous values as bytes: gloo does not know every type."""
    # a dimension of one may have any stride, which a view as bytes does not take
    return values.as_strided((values.numel(),), (1,)).view(torch.uint8)
