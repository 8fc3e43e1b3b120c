"""Chooses the state that workers resume from when they meet again after a loss: the newest that any of them has."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from volary.train.recovery.kept_state import KeptState
from volary.train.recovery.recovery_point import OfferedShares, common_point

if TYPE_CHECKING:
    from volary.run.launch.members import GroupMembers

NOTHING = [-1, False]  # the newness of nothing
SPARE = [-2, False]  # of what a worker has that has not trained, or is to get the state of others: they go by theirs
Gather = Callable[[Any], list[Any]]


@dataclass(frozen=True)
class AgreedStart:
    """members: of the new group, first one that has the state which all resume from. kept: what this worker has of that
    state; None: nobody has finished a step, or nobody has a whole state any more. again: what this worker still has if
    the group breaks before all have resumed.
    """

    members: GroupMembers
    kept: KeptState | None
    again: KeptState | None


def from_newest(members: GroupMembers, rank: int, own: KeptState | None, gather: Gather, *, spare: bool) -> AgreedStart:
    """Agree on the newest state, which its first owner sends to all. own: what `rank` has kept. gather: a collective
    call. spare: it has not trained, and others have.
    """
    replaced = own is not None and not own.alike
    newness = SPARE if spare or replaced else NOTHING if own is None else list(own.newness)
    everyone = gather(newness)
    newest = max(everyone)
    members = members.led_by(members.ranks[everyone.index(newest)])
    if NOTHING in everyone or newest == SPARE:  # some have not trained yet, so that nobody has finished a step
        return AgreedStart(members, None, None)
    kept = (KeptState.nothing() if own is None else own).among(members.ranks)
    kept = kept if rank == members.ranks[0] else replace(kept, alike={})  # that of the first is sent to all
    # the newer state comes over an older one: should that break, it is neither, but for what is this worker's alone
    again = own if own is None or newness == newest else replace(own, alike={})
    return AgreedStart(members, kept, again)


def from_common_point(members: GroupMembers, own: KeptState | None, gather: Gather) -> AgreedStart:
    """As `from_newest`, where each worker has a share: the newest point of which all shares are there.

    Raises WorkerLost if there is none.
    """
    everyone = gather([one.plain() for one in ([] if own is None else own.offers())])
    offers = {one: list(map(OfferedShares.of, some)) for one, some in zip(members.ranks, everyone, strict=True)}
    point = common_point(offers)
    if point is None:
        return AgreedStart(members, None, None)
    first = next(one for one in offers if point in (offer.point for offer in offers[one]))
    kept = KeptState.nothing() if own is None else own.at(point)
    return AgreedStart(members.led_by(first), kept.among(members.ranks), own)
