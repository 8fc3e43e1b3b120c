"""Connects the group that is to follow while the one before still trains: far away that takes seconds."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from volary.run.launch.members import GroupMembers

if TYPE_CHECKING:
    from volary.comm.groups.gloo import GroupAhead
    from volary.train.member.process import Membership


class NextGroup:
    """The group that follows, as far as a worker knows: its heartbeat tells it, and the training thread takes it."""

    def __init__(self) -> None:
        self._members: GroupMembers | None = None
        self._ahead: GroupAhead | None = None
        self._lock = threading.Lock()

    def expect(self, member: Membership, newest: GroupMembers, requests: Iterable[Mapping[str, Any]]) -> None:
        """Begin to connect those that follow the newest members, if these have been asked to pause for others.

        newest: as the driver has named them. requests: all that it has passed on to its workers, in plain values.
        """
        following = _following(newest, requests)
        with self._lock:
            if self._members == (following or newest):
                return
            self._members = following or newest
            self._give_up()
            rank = member.place.rank
            if following is not None and rank in following.ranks:
                self._ahead = _begun(member, following)

    def taken(self) -> GroupAhead | None:
        """Take what connects, if any does."""
        with self._lock:
            ahead, self._ahead = self._ahead, None
            return ahead

    def give_up(self) -> None:
        """End what it has begun to connect."""
        with self._lock:
            self._give_up()

    def _give_up(self) -> None:
        if self._ahead is not None:
            self._ahead.give_up()
            self._ahead = None


def _following(newest: GroupMembers, requests: Iterable[Mapping[str, Any]]) -> GroupMembers | None:
    current = [one for one in requests if one.get("type") == "members" and one["number"] == newest.number]
    return GroupMembers(tuple(current[-1]["following"]), newest.number + 1) if current else None


def _begun(member: Membership, members: GroupMembers) -> GroupAhead:
    from volary.comm.control.store import KeyedStore  # imports torch
    from volary.comm.groups.gloo import GroupAhead
    from volary.comm.groups.group import LAST_RESORT_S

    at, key, place = member.meeting, member.directory.key(), member.place
    begun = GroupAhead(
        name=f"{at.attempt}/{members.number}/{','.join(map(str, members.ranks))}",
        opened=lambda: KeyedStore.at(at.host, at.port, key, at.attempt_id, LAST_RESORT_S),
        rank=members.ranks.index(place.rank),
        size=len(members.ranks),
        address=place.address,
        timeout=timedelta(seconds=LAST_RESORT_S),
    )
    begun.start()
    return begun
