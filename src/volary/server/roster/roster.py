"""The roster: members, tasks, and which contributions make an update. One place decides for a whole run."""

from __future__ import annotations

from typing import Any

import msgspec

from volary.comm.control.errors import BadMessage
from volary.comm.control.service import Replies
from volary.run.control.requests import Request
from volary.server.membership.attendance import Attendance
from volary.server.membership.members import Member
from volary.server.membership.outgoing import Record
from volary.server.membership.replicas import ServerReplica
from volary.server.protocol.from_members import (
    Again,
    Ask,
    AskSave,
    Beat,
    Computed,
    Done,
    Evaluated,
    Figures,
    FromMember,
    Kept,
    Leave,
    Over,
    PartialNorms,
    Products,
    Saved,
    Unreachable,
)
from volary.server.protocol.hello import Hello, WorkerHello
from volary.server.protocol.to_members import LEFT, Acknowledged, End, SaveEnded
from volary.server.roster.closing import ConsistencyModel
from volary.server.roster.counters import RosterCounters
from volary.server.roster.progress import RosterContext, RunProgress, WorkReport
from volary.server.roster.settings import RosterSettings
from volary.server.roster.snapshots import CheckpointStore
from volary.server.roster.state import Outcome, RosterState

LOOK_S = 0.5  # at most this much time is seen to pass between two ticks: a roster that slept blames nobody for it
_OF_ONE = (Ask, Computed, Done)  # what a worker says of its own work
LEAVE_S = 5.0  # that workers have to go, once the run is over, before the servers are told


class Roster:
    """The service "roster" of a run's server (see volary.comm.control.service).

    restored: the step of the checkpoint that the run resumes from, and its roster's state. corrupt: why the run cannot
    go on, if that is its data's fault. Raises SettingError if the model cannot be had with so many workers.
    """

    def __init__(
        self,
        settings: RosterSettings,
        model: ConsistencyModel,
        keeping: CheckpointStore,
        record: Record,
        restored: tuple[int, dict[str, Any]] | None = None,
    ) -> None:
        self.corrupt = ""
        self._settings, self._model, self._keeping = settings, model, keeping
        self._state = state = msgspec.convert(restored[1], RosterState) if restored else RosterState()
        self._closer = model.closer(settings.workers, state.closings, state.samples)
        began_with = restored[0] if restored else None, state.closings
        self._attendance = attendance = Attendance(settings, record, elastic=model.elastic, restored=began_with)
        self._members, self._replicas, self._outgoing = attendance.members, attendance.replicas, attendance.outgoing
        self._counters = RosterCounters()
        self._requests: list[Request] = []
        self._now: float | None = None
        self._seen_s = 0.0  # time that was watched
        self._over_at = 0.0

    @property
    def outcome(self) -> Outcome | None:
        """How the run ended, once it has."""
        return self._attendance.outcome

    @property
    def failure(self) -> str:
        """Why the run cannot go on, if it cannot: a sentence."""
        return self._attendance.failure

    @property
    def lost_server(self) -> tuple[int, str] | None:
        """The server whose loss that is, if one's, and what happened to it."""
        return self._attendance.lost_server

    @property
    def awaited(self) -> list[str]:
        """The members that have yet to come before the run begins."""
        return self._attendance.awaited

    @property
    def _progress(self) -> RunProgress | None:
        return self._attendance.progress

    @property
    def samples(self) -> int:
        """Samples that all updates so far have learnt from."""
        return self._progress.work.samples if self._progress else self._state.samples

    @property
    def steps(self) -> int:
        """Whole batches that all updates so far have learnt from."""
        return self._attendance.steps

    @property
    def unsaved(self) -> str:
        """Why the run's last checkpoint is not there; empty if it is, or is yet to come."""
        return self._progress.snapshots.unsaved if self._progress else ""

    @property
    def ended(self) -> bool:
        """Whether everybody has heard the end and gone."""
        return self.outcome is not None and not len(self._members) and not len(self._replicas)

    # What the driver tells

    def lost(self, rank: int, reason: str, now: float) -> Replies:
        """A worker is given up; its work goes to others. reason: what happened to it, without its name."""
        member = self._members.of(rank)
        if member is not None:
            self._outgoing.dismiss(member.peer, End(f"{self._settings.called(rank)} was given up: it {reason}"))
        self._attendance.worker_gone(rank, "lost", reason, now)
        return self._replies(now)

    def left(self, rank: int, now: float) -> Replies:
        """A worker has gone by itself; what the roster did not know of is that one that was let in will not come."""
        if self._members.of(rank) is None:
            self._attendance.worker_gone(rank, "left", "has left", now)
        return self._replies(now)

    def expect(self, rank: int) -> None:
        """A worker is let in, and will come unless it is given up: until then the run has one that is left."""
        self._members.expect(rank)

    def finish(self, now: float) -> Replies:
        self._attendance.stopping = True
        return self._replies(now)

    def ask(self, request: Request, now: float) -> Replies:
        """Do what the run is asked to do with the next update, or with the first one."""
        self._requests.append(request)
        return self._replies(now)

    # What members say

    def opened(self, peer: int, hello: dict[str, Any], now: float) -> Replies:
        """A worker or a server has come: it is welcome, or told why not."""
        who = _converted(hello, Hello)
        if isinstance(who, WorkerHello):
            self._attendance.admit_worker(peer, who)
        else:
            self._attendance.admit_server(peer, who, self._seen_s)
        return self._replies(now)

    def received(self, peer: int, message: Any, now: float) -> Replies:
        """A message has come. Raises BadMessage if it makes no sense."""
        report = _converted(message, FromMember)
        progress = self._progress
        held_by = progress.work.held_by if progress else None
        if (member := self._members.at(peer)) is not None:
            self._take_from_worker(member, report, now)
        elif (server := self._replicas.at(peer)) is not None:
            server.seen_at = self._seen_s
            self._take_from_server(server, report)
        # mostly what one does gives the others nothing to do, of whom there may be thousands
        alone = progress and isinstance(report, _OF_ONE) and held_by is not None and progress.work.held_by == held_by
        return self._replies(now, member if alone else None)  # what somebody says who was given up is passed over

    def closed(self, peer: int, now: float) -> Replies:
        if (member := self._members.at(peer)) is not None:
            self._attendance.worker_gone(member.rank, "lost", "has closed its connection", now)
        elif (server := self._replicas.at(peer)) is not None:
            self._attendance.server_gone(server, "has gone")
        return self._replies(now)

    def tick(self, now: float) -> Replies:
        self._seen_s += min(now - self._now, LOOK_S) if self._now is not None else 0.0
        self._now = now
        for server in self._replicas.silent(self._seen_s):
            self._outgoing.dismiss(server.peer, End(f"server {server.number} was silent for too long"))
            self._attendance.server_gone(server, "is silent: it is stopped, or its host is gone")
        if self._progress is not None:
            self._progress.announce(self._progress.work.tick(now))
            self._progress.snapshots.tick(now)
        if self._counters.due(now):
            self._outgoing.record("counts", None, {"rows": self._counters.taken(now)})
        return self._replies(now)

    # What they say

    def _take_from_worker(self, member: Member, report: Any, now: float) -> None:
        match report:
            case Ask():
                member.ask(now)
            case Leave() if not self._model.elastic:
                self._attendance.stopping = True  # one worker is asked to go: the run is meant, which needs each
            case Leave() if self._settings.each > 1 and self._progress is not None:
                member.leaves = True  # with all that hold its replica, who do together what they were given
            case Leave():
                self._let_go(member, End("it wanted to leave"), now)
            case Again() if self._progress is not None:
                self._progress.again(member.rank, report.clock, now)
            case Over():
                self._loop_over(member, now)
            case AskSave():
                self._loop_saves(member, report.clock)
            case Unreachable():
                self._attendance.cannot_reach(member, report.server, now)
            case Computed() | Done() | Evaluated() | Figures() | Saved():
                self._take_work(member.rank, report, now)
            case _:
                raise BadMessage(f"rank {member.rank} says what only a server says: {type(report).__name__}")

    def _let_go(self, member: Member, end: End, now: float) -> None:
        self._outgoing.dismiss(member.peer, end)
        self._attendance.worker_gone(member.rank, "left", "has left", now)

    def _loop_over(self, member: Member, now: float) -> None:
        """A worker's own loop is over. What it has not done is for those that go on; after the last one the run is."""
        if self._progress is None:
            raise BadMessage(f"rank {member.rank} reports its loop's end before there was any work")
        member.over, member.asks = True, 0
        self._progress.announce(self._progress.work.leave(member.rank, now))

    def _loop_saves(self, member: Member, clock: int) -> None:
        """A worker's own loop saves. Where each goes at its own pace, the first of those here does it for all."""
        if self._progress is None:
            raise BadMessage(f"rank {member.rank} wants to save before there was any work")
        if self._model.elastic and any(each.rank < member.rank and not each.over for each in self._members):
            self._outgoing.to(member.peer, SaveEnded())
        else:
            member.saves = clock

    def _take_work(self, rank: int, report: WorkReport, now: float) -> None:
        if self._progress is None:
            raise BadMessage(f"rank {rank} reports on work before there was any")
        self._progress.take(rank, report, now)
        if isinstance(report, Computed) and report.lost and (corrupt := self._progress.corrupt):
            self.corrupt = corrupt
            self._attendance.fail(corrupt)

    def _take_from_server(self, server: ServerReplica, report: Any) -> None:
        if isinstance(report, Beat):
            server.applied = report.applied
            self._counters.beat(server.number, report)
            self._outgoing.to(server.peer, Acknowledged())
        elif not isinstance(report, Kept | PartialNorms | Products | Saved):
            raise BadMessage(f"server {server.number} says what only a worker says: {type(report).__name__}")
        elif self._progress is None:
            raise BadMessage(f"server {server.number} reports on an update before there was any")
        else:
            self._progress.take_from_server(server.number, report)

    # What follows from it

    def _replies(self, now: float, alone: Member | None = None) -> Replies:
        """Go on as far as possible; all that is to be sent. alone: the only worker that there may be something for."""
        if self.outcome is None and not self.failure:
            self._begin(now)
            if self._progress is not None:
                self._go_on(self._progress, now, alone)
            elif self._attendance.stopping:
                self._end("stopped", now)
        if self.outcome is not None and len(self._replicas):
            self._dismiss_servers(now)
        return self._outgoing.taken()

    def _begin(self, now: float) -> None:
        """Begin the work once everybody is here."""
        first = self._attendance.admission.first
        if self._progress is not None or first is None or self.awaited or not len(self._members):
            return
        self._attendance.progress = progress = RunProgress(
            self._settings,
            self._model,
            self._closer,
            first,
            self._state,
            RosterContext(self._outgoing, self._replicas, self._keeping, self._counters),
        )
        for member in self._members:
            progress.work.join(member.rank)
        for member in self._members:
            progress.work.take_part(member.rank, now)
        self._attendance.send_view()

    def _go_on(self, progress: RunProgress, now: float, alone: Member | None) -> None:
        progress.do(self._requests)
        self._requests = []
        progress.save_for_loops(self._members, elastic=self._model.elastic)
        if self._attendance.stopping:
            progress.stop()
        elif len(self._members) and all(member.over for member in self._members):
            progress.loops_over()
        for member in [one for one in self._members if one.leaves and not progress.is_busy(one.rank)]:
            self._let_go(member, End(LEFT), now)
        progress.hand_out(self._members, alone, now)
        progress.end_if_over()
        if progress.over:
            self._end(progress.ending or "stopped", now)

    def _end(self, outcome: Outcome, now: float) -> None:
        self._attendance.outcome, self._over_at = outcome, now
        self._outgoing.record("counts", None, {"rows": self._counters.taken(now)})
        self._outgoing.to_workers(End(outcome, self.unsaved))

    def _dismiss_servers(self, now: float) -> None:
        """Let the servers go once the workers have gone."""
        if not len(self._members) or now - self._over_at > LEAVE_S:
            for server in self._replicas:
                self._outgoing.dismiss(server.peer, End(self.outcome or "stopped"))
                self._replicas.gone(server.peer)


def _converted(message: Any, kind: Any) -> Any:
    try:
        return msgspec.convert(message, kind)
    except msgspec.ValidationError as error:
        raise BadMessage(str(error)) from None
