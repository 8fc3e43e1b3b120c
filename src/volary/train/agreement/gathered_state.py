"""Puts the state of the optimisers of all ranks, each of its share, together on each of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from volary.comm.groups.blocking import from_rank, gather_plain
from volary.train.state.optimizer_state import OptimizerState
from volary.train.state.skeleton import blank, put_together, taken_apart

if TYPE_CHECKING:
    from volary.comm.groups.group import Group


def gathered(state: OptimizerState, group: Group) -> OptimizerState:
    """The state of all ranks' parts. A collective call: `state` is of this rank's."""
    plain, own = taken_apart(state.plain())
    parts: list[Any] = []
    for rank, theirs in enumerate(gather_plain(plain, group)):
        tensors = own if rank == group.rank else blank(theirs)
        for tensor in tensors:
            from_rank(rank, tensor, group)
        parts += put_together(theirs, tensors)
    return OptimizerState.from_plain(parts)
