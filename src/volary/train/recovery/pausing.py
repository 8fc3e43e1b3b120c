"""All members of a group pause between two contributions, where others follow them: some leave, or have joined."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from volary.comm.groups.blocking import from_rank
from volary.errors import PeerLost
from volary.sharding.groups import heir
from volary.train.state.skeleton import blank, put_together, taken_apart

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from volary.comm.groups.group import Group
    from volary.run.control.requests import ChangeMembers
    from volary.train.state.stateful import RankState


class MembersChange(PeerLost):
    """Raised on all ranks of a group once all have done the same contributions, and nothing exchanges any more.

    change: what they have paused for.
    """

    def __init__(self, change: ChangeMembers) -> None:
        super().__init__("the members of the run change")
        self.change = change


def hand_over(own: RankState, members: Sequence[int], leaving: Sequence[int], group: Group) -> Mapping[int, Any]:
    """Hand what is each leaving rank's `own` over to one that stays; what this worker gets, by rank of the run.

    members: ranks of the run, in the order of the group's. A collective call. Who gets what is as if the run had been
    resumed without those that leave: see `volary.sharding.groups.heir`.
    """
    left = [rank for rank in members if rank not in leaving]
    found = {}
    for place, rank in enumerate(members):
        if rank in left:
            continue
        topic, tensors = f"handed over by {rank}", list[Any]()
        if group.rank == place:
            plain, tensors = taken_apart(own.rank_state())
            group.bulletin.post(topic, plain)
        else:
            plain = group.bulletin.read(topic, place)
            tensors = blank(plain)
        for tensor in tensors:
            from_rank(place, tensor, group)
        if members[group.rank] == left[heir(place, len(left))]:
            found[rank] = put_together(plain, tensors)
    return found
