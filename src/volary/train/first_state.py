"""What all ranks begin with: rank 0's parameters, and of a resumed run the optimiser's state, in a few messages."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from volary.exchange._collectives import take_all_from_first

if TYPE_CHECKING:
    from torch import Tensor

MESSAGE_BYTES = 2**20  # smaller tensors travel together up to this


@dataclass(frozen=True)
class Late:
    """Tensors that rank 0 sends after the parameters, and what is to be done when all have come.

    new: the parameters have to be sent; False where all ranks have had them in steps before.
    """

    tensors: Sequence[Tensor] = ()
    come: Callable[[], None] = field(default=lambda: None)
    new: bool = True


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


def share_now(parameters: Sequence[Tensor], late: Late, broadcast: Callable[[Tensor], None]) -> None:
    """Give every rank what rank 0 has, and wait for it. A collective call. broadcast: of bytes, from rank 0."""
    for group in (*messages(parameters if late.new else []), *messages(late.tensors)):
        take_all_from_first(group, broadcast)
    late.come()
