"""A run in lock step that goes on when members are lost, leave or join: they meet again, and train on from memory."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

from volary.comm.control.errors import ConnectionLost
from volary.errors import PeerLost
from volary.run.launch.members import GroupMembers
from volary.session.spec import Session
from volary.train.member.compare import compare_with_first, data_facts, shape_facts
from volary.train.recovery.agreed_start import from_common_point, from_newest
from volary.train.recovery.pausing import MembersChange
from volary.train.worker.connect import facts_of_first, gathered
from volary.train.worker.session import run_facts

if TYPE_CHECKING:
    from volary.train.coordinator import Outcome
    from volary.train.member.process import Membership
    from volary.train.member.pulse import Pulse
    from volary.train.model import Model
    from volary.train.recording.recorder import Recorder
    from volary.train.recovery.kept_state import KeptState
    from volary.train.worker.connect import Interrupting

MAY_CHANGE = ("setting strategy.workers", "setting strategy.between", "setting optimizer.lr")  # while a run trains


@dataclass
class TrainingGroup:
    """One of the groups that train a run, one after the other, as one of its workers sees it.

    member: with this worker's place in the group. session: of as many workers. members: of the group. interrupting: as
    of `volary.train.worker.connect.joined`. lost, spares: ranks that only the group that trained last had, or this one.
    model, kept: what this worker has of that; None: it begins as the attempt did. begun: called when all have what they
    begin with. keep: told the network, and what is kept of it, if the group breaks.
    """

    member: Membership
    session: Session
    members: GroupMembers
    interrupting: Interrupting
    lost: Sequence[int]
    spares: Sequence[int]
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
    """The groups of a run, as one of its workers goes through them. session: of the first group.

    network: makes what a spare worker trains as soon as it is to take a lost one's place.
    """

    def __init__(
        self, session: Session, member: Membership, recorder: Recorder, pulse: Pulse, network: Callable[[], Model]
    ) -> None:
        self._session, self._member, self._recorder, self._news = session, member, recorder, pulse.members
        self._pulse, self._network = pulse, network
        self._spare = False  # this worker has not trained, and others have
        self._began = self._tried = GroupMembers(())  # the newest that trained, and those that were to
        self._model: Model | None = None
        self._kept: KeptState | None = None

    def run(self, train: Callable[[TrainingGroup], Outcome]) -> Outcome:
        """Train in one group after the other, until the run ends.

        Raises what `train` raises, and PeerLost if nobody says who trains on.
        """
        members = self._began = GroupMembers(tuple(range(self._session.strategy.workers)))
        rank = self._member.place.rank
        if rank not in members.ranks:
            named = self._waited()
            if named is None:
                return "left"
            members = named
        while rank in members.ranks:
            try:
                return train(self._group(members, self._began))
            except Exception as error:
                if self._session.strategy.recover != "memory":
                    raise
                # while members change, what breaks in a worker is most likely the exchange
                if not isinstance(error, PeerLost | ConnectionLost) and self._news.newest.number == members.number:
                    raise
                lost = PeerLost(str(error))  # without the traceback, which holds all that has trained
                if isinstance(error, MembersChange):
                    self._pulse.pause(error.change)
            with self._recorder.waiting():
                members = self._news.after(members, lost)
        return "left"

    def _waited(self) -> GroupMembers | None:
        """Be ready, and wait until this worker is to train; None: the run is over before, or it is to leave."""
        self._spare, self._model = True, self._network()
        if self._member.joins:
            self._compare(self._model)
        else:
            self._recorder.event("spare")
        self._recorder.enter("idle")
        self._pulse.can_finish(saves=False)
        return self._news.naming(
            self._member.place.rank, lambda: self._pulse.asked_to_end or self._pulse.asked_to_leave
        )

    def _compare(self, model: Model) -> None:
        """Raise RanksDiffer, with a table, unless this worker could have begun the run with the others."""
        facts = run_facts(self._session, self._member), shape_facts(model.module) | data_facts(model.samples)
        theirs = facts_of_first(self._member, self._recorder, self._news, ("code", "shapes"))
        own = facts[0] | facts[1]
        for name in MAY_CHANGE:
            own.pop(name, None), theirs.pop(name, None)
        compare_with_first(theirs, own, self._member.place.rank)

    def _group(self, members: GroupMembers, before: GroupMembers) -> TrainingGroup:
        interrupting, rank = partial(self._news.interrupting, members), self._member.place.rank
        if not members.number:
            return self._made(self._placed(members, rank), self._session, members, before, interrupting, None)
        placed, number = self._placed(members, rank), members.number
        gather = partial(gathered, placed, self._recorder, number, "kept", interrupting=interrupting)
        if self._session.strategy.posts_shares:
            start = from_common_point(members, self._kept, gather)
        else:
            start = from_newest(members, rank, self._kept, gather, spare=self._spare)
        members, self._kept = start.members, start.again
        placed = self._placed(members, rank)
        now = [f"strategy.workers={len(members.ranks)}", "strategy.between=null"]  # whoever is lost, the others go on
        session = Session.read(placed.directory.session, now)
        self._recorder.place = placed.place.rank
        if start.kept is None:  # its newest checkpoint says how far it was, if there is one
            self._recorder.go_on_from(0)
        return self._made(placed, session, members, before, interrupting, start.kept)

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
        before: GroupMembers,
        interrupting: Interrupting,
        kept: KeptState | None,
    ) -> TrainingGroup:
        lost, spares = (
            [rank for rank in one.ranks if rank not in other.ranks]
            for one, other in ((before, members), (members, before))
        )
        model, self._tried = None if kept is None else self._model, members
        return TrainingGroup(member, session, members, interrupting, lost, spares, model, kept, self._begun, self._keep)

    def _begun(self) -> None:
        self._model = self._kept = None
        self._spare, self._began = False, self._tried

    def _keep(self, model: Model, kept: KeptState) -> None:
        self._model, self._kept = model, kept
