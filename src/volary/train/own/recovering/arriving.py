"""A worker that joins a loop of one's own: it waits at `worker.restore`, and begins with what others have in memory.

Its program runs from its start, as in a run that is resumed. The others are between two steps by then, about to take a
batch: what they have there is what a checkpoint would have that they wrote at this place.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from volary.comm.topology.links import Links
from volary.errors import BadInput, RunError, Stopped
from volary.sharding.groups import LEADER
from volary.train.member.compare import compare_with_first, shape_facts
from volary.train.state.skeleton import blank, put_together, taken_apart
from volary.train.worker.connect import facts_of_first

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from torch import nn

    from volary.comm.groups.group import Group
    from volary.run.launch.members import GroupMembers
    from volary.train.member.compare import Facts
    from volary.train.member.process import Membership
    from volary.train.member.pulse import Pulse
    from volary.train.recording.recorder import Recorder

LOOP = "loop"  # the topic of facts that rank 0 posts of its loop, once it has its first batch
WHY_NOT = "nobody can join"  # the one of them that says why, or nothing
_CODE = "code"
_STATE = "state of the loop"
_REFUSED = "refused"  # in place of the state
_TAG = 2**30 + 1  # another than that of copies of shares


class JoiningWorker:
    """From the start of this worker's program until it trains with the others. waits: it is not with them yet.

    late: it has not had a batch with them yet: its calls are not theirs.
    """

    def __init__(self, member: Membership, recorder: Recorder, pulse: Pulse, *, waits: bool) -> None:
        self._member, self._recorder, self._pulse, self._news = member, recorder, pulse, pulse.members
        self.waits = self.late = waits

    def compare_code(self, own: Facts) -> None:
        """Raise RanksDiffer, with a table, unless this worker's code is that of the run's first one."""
        theirs = facts_of_first(self._member, self._recorder, self._news, [_CODE])
        known = {name: fact for name, fact in theirs.items() if name in own}  # settings came otherwise, by a launcher
        compare_with_first(known, own, self._member.place.rank)

    def wait(self, own: Facts) -> GroupMembers:
        """Be ready, and wait until others train with this worker. own: facts of its loop.

        Raises RanksDiffer unless they are those of the run's first worker, BadInput if nobody can join that loop, and
        Stopped if the run is over before.
        """
        theirs = facts_of_first(self._member, self._recorder, self._news, [LOOP])
        if why := theirs.pop(WHY_NOT):
            raise BadInput(f"nobody can join this run: {why}")
        compare_with_first(theirs, own, self._member.place.rank)
        if not self._member.joins:
            self._recorder.event("spare")
        self._recorder.enter("idle")
        pulse = self._pulse
        members = self._news.naming(self._member.place.rank, lambda: pulse.asked_to_end or pulse.asked_to_leave)
        if members is None:
            raise Stopped("the run is over, or this worker leaves it, before it has trained")
        return members

    def require_others(self, called: str) -> None:
        """Raise BadInput for a call of all workers, which the others have made before this one came."""
        if self.late:
            raise BadInput(
                f"{called} was called by a worker that joins, before its first batch with the others, who have made "
                "that call already; accepted: calls of all workers in the loop over worker.epochs alone"
            )

    def require_joined(self) -> None:
        """Raise BadInput where the loop begins without `worker.restore`, at which this worker would meet the others."""
        if self.waits:
            raise BadInput(
                "the loop begins without worker.restore, at which a worker that joins gets what the others have; "
                "accepted: worker.restore(model=model, optimizer=optimizer) right before the loop"
            )


def facts_of(models: Sequence[nn.Module], names: Sequence[str]) -> Facts:
    """Facts of a loop that are those of all its workers. names: that `worker.restore` was given."""
    return {"values of worker.restore": ", ".join(sorted(names)), **shape_facts(torch.nn.ModuleList(models))}


def hand_over(state: Mapping[str, Any], group: Group, places: Sequence[int]) -> None:
    """Send a state to the workers at these places of `group`; if it has more than plain values and tensors, the reason
    why it cannot be sent.
    """
    try:
        plain, tensors = taken_apart(state)
    except RunError as error:
        plain, tensors = {_REFUSED: str(error)}, []
    group.bulletin.post(_STATE, plain)
    links = Links(group)
    for place in places:
        for tensor in tensors:
            if tensor.numel():
                links.send(tensor.detach().contiguous(), place, _TAG).wait()


def taken_over(group: Group) -> Any:
    """The state that the first worker of `group` hands over to this one. Raises BadInput if it cannot be sent."""
    plain = group.bulletin.read(_STATE, LEADER)
    if _REFUSED in plain:
        raise BadInput(f"nobody can join this run: of what worker.restore is given, {plain[_REFUSED]}")
    tensors, links = blank(plain), Links(group)
    for tensor in tensors:
        if tensor.numel():
            links.receive(tensor, LEADER, _TAG).wait()
    return put_together(plain, tensors)


def refuse_unknown(named: Mapping[str, Any]) -> None:
    """Raise BadInput for values given to `worker.restore` of which nobody knows what they are by now."""
    for name, value in named.items():
        if not hasattr(value, "state_dict"):
            raise BadInput(
                f"worker.restore was given {name}, a {type(value).__name__}, and nobody who joins the run learns what "
                "it is by now; accepted for that: what has state_dict() and load_state_dict()"
            )
