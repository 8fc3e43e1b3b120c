"""Lets workers that compute parts of the same layers draw the same random numbers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from volary.comm.groups.blocking import from_rank, gather_plain
from volary.sharding.groups import LEADER
from volary.train.state.seeds import generators_state, restore_generators
from volary.train.state.skeleton import blank, put_together, taken_apart

if TYPE_CHECKING:
    from volary.comm.groups.group import Group
    from volary.sharding.holdings import Holdings


def same_draws(group: Group, holdings: Holdings) -> None:
    """Let every generator be where it is on the first of `group`, if its ranks learn from the same samples.

    group: the ranks that hold a replica together. A collective call.
    """
    if holdings.mesh.tensor == holdings.mesh.pipeline == 1:
        return
    plain, own = taken_apart(generators_state())
    theirs = gather_plain(plain, group)[LEADER]
    tensors = own if group.leads else blank(theirs)
    for tensor in tensors:
        from_rank(LEADER, tensor, group)
    restore_generators(put_together(theirs, tensors))
