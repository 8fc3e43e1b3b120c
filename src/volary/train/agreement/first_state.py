"""Broadcasts the first state: rank 0's parameters, and of a resumed run the optimiser's state, in a few messages."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from volary.comm.groups.blocking import take_all_from_first
from volary.train.member.compare import compare, shape_facts

if TYPE_CHECKING:
    from torch import Tensor, nn

    from volary.comm.groups.group import Group
    from volary.train.member.compare import Facts

MESSAGE_BYTES = 2**20  # smaller tensors travel together up to this


@dataclass(frozen=True)
class DeferredTensors:
    """Tensors that rank 0 sends after the parameters, and what is to be done when all have come.

    new: the parameters have to be sent; False where all ranks have had them in steps before. shares: each rank has the
    values that it keeps, of those parameters that no rank has all of.
    """

    tensors: Sequence[Tensor] = ()
    on_arrival: Callable[[], None] = field(default=lambda: None)
    new: bool = True
    shares: bool = False


def messages(tensors: Sequence[Tensor]) -> list[list[Tensor]]:
    """The tensors in their order, small neighbours together."""
    groups: list[list[Tensor]] = []
    filled = 0
    for tensor in tensors:
        size = tensor.numel() * tensor.element_size()
        if not groups or filled + size > MESSAGE_BYTES:
            groups.append([])
            filled = 0
        groups[-1].append(tensor)
        filled += size
    return groups


def share_now(
    parameters: Sequence[Tensor], late: DeferredTensors, group: Group, broadcast: Callable[[Tensor], None] | None = None
) -> None:
    """Give every rank what rank 0 has, and wait for it. A collective call. broadcast: as of `take_from_first`."""
    for together in (*messages(parameters if late.new else []), *messages(late.tensors)):
        take_all_from_first(together, group, broadcast)
    late.on_arrival()


def share_buffers(module: nn.Module, group: Group) -> None:
    """Give every rank of `group` the buffers of rank 0, which are small; parameters follow later. A collective call."""
    if group.size > 1:
        for together in messages(list(module.buffers())):
            take_all_from_first(together, group)


def agree_on_network(module: nn.Module, group: Group, data: Facts | None = None) -> None:
    """Raise RanksDiffer unless all ranks have a network of these shapes and types; give all the buffers of rank 0.

    data: facts of each rank's data, which must agree, too. A collective call.
    """
    facts = shape_facts(module) | (data or {})
    compare(group.bulletin, "shapes", facts)
    if group.leads:  # for those that join
        group.bulletin.post("shapes", facts)
    share_buffers(module, group)
