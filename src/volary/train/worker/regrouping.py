"""A run in lock step that goes on when a worker is lost: those that are left meet again, and train on from memory."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

from volary.comm.control.errors import ConnectionLost
from volary.errors import PeerLost
from volary.run.launch.members import GroupMembers
from volary.session.spec import Session
from volary.train.worker.connect import gathered

if TYPE_CHECKING:
    from volary.train.coordinator import Outcome
    from volary.train.member.process import Membership
    from volary.train.member.pulse import Pulse
    from volary.train.model import Model
    from volary.train.recording.recorder import Recorder
    from volary.train.recovery.kept_state import KeptState
    from volary.train.worker.connect import Interrupting

NOTHING = [-1, False]  # the newness of nothing


@dataclass
class TrainingGroup:
    """One of the groups that train a run, one after the other, as one of its workers sees it.

    member: with this worker's place in the group. session: of as many workers. members: of the group. interrupting: as
    of `volary.train.worker.connect.joined`. lost: ranks that were in the group before. model, kept: what this worker
    has of that; None: it begins as the attempt did. begun: called when all have what they begin with. keep: told the
    network, and what is kept of it, if the group breaks.
    """

    member: Membership
    session: Session
    members: GroupMembers
    interrupting: Interrupting
    lost: Sequence[int]
    model: Model | None
    kept: KeptState | None
    begun: Callable[[], None]
    keep: Callable[[Model, KeptState], None]

    def taken(self) -> tuple[Model | None, KeptState | None]:
        """Model and kept, which whoever takes them is the only one to hold."""
        found = self.model, self.kept
        self.model = self.kept = None
        return found


class Regrouping:
    """The groups of a run, as one of its workers goes through them. session: of the first group."""

    def __init__(self, session: Session, member: Membership, recorder: Recorder, pulse: Pulse) -> None:
        self._session, self._member, self._recorder, self._news = session, member, recorder, pulse.members
        self._model: Model | None = None
        self._kept: KeptState | None = None

    def run(self, train: Callable[[TrainingGroup], Outcome]) -> Outcome:
        """Train in one group after the other, until the run ends.

        Raises what `train` raises, and PeerLost if nobody says who trains on.
        """
        members = before = GroupMembers(tuple(range(self._member.place.world_size)))
        while True:
            try:
                return train(self._group(members, before))
            except Exception as error:
                if self._session.strategy.recover != "memory":
                    raise
                # while members change, what breaks in a worker is most likely the exchange
                if not isinstance(error, PeerLost | ConnectionLost) and self._news.newest.number == members.number:
                    raise
                lost = PeerLost(str(error))  # without the traceback, which holds all that has trained
            with self._recorder.waiting():
                members, before = self._news.after(members, lost), members

    def _group(self, members: GroupMembers, before: GroupMembers) -> TrainingGroup:
        interrupting = partial(self._news.interrupting, members)
        lost = [rank for rank in before.ranks if rank not in members.ranks]
        if not members.number:
            return self._made(self._member, self._session, members, interrupting, lost, None)
        rank, kept = self._member.place.rank, self._kept
        own = NOTHING if kept is None else list(kept.newness)
        kept_by_all = gathered(self._placed(members, rank), self._recorder, members.number, "kept", own, interrupting)
        newest = max(kept_by_all)
        if NOTHING in kept_by_all:  # some have not trained yet, so that nobody has finished a step
            self._kept = kept = None
        elif own != newest:
            self._kept = None  # the newer state comes over this one: should that break, it is neither
        first = members.ranks[kept_by_all.index(newest)]
        if kept_by_all[0] != newest:
            others = (one for one in members.ranks if one != first)
            members = replace(members, ranks=(first, *others))
        placed = self._placed(members, rank)
        session = Session.read(placed.directory.session, [f"strategy.workers={len(members.ranks)}"])
        self._recorder.place = placed.place.rank
        self._recorder.replaced()
        if kept is not None and not placed.place.leads:
            kept = replace(kept, alike={})  # that of the first is sent to all
        return self._made(placed, session, members, interrupting, lost, kept)

    def _placed(self, members: GroupMembers, rank: int) -> Membership:
        if rank not in members.ranks:
            raise PeerLost(f"the run goes on without rank {rank}")
        place = replace(self._member.place, rank=members.ranks.index(rank), world_size=len(members.ranks))
        return replace(self._member, place=place)

    def _made(
        self,
        member: Membership,
        session: Session,
        members: GroupMembers,
        interrupting: Interrupting,
        lost: Sequence[int],
        kept: KeptState | None,
    ) -> TrainingGroup:
        model = None if kept is None else self._model
        return TrainingGroup(member, session, members, interrupting, lost, model, kept, self._begun, self._keep)

    def _begun(self) -> None:
        self._model = self._kept = None

    def _keep(self, model: Model, kept: KeptState) -> None:
        self._model, self._kept = model, kept
