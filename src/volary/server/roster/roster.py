"""The roster: members, tasks, and which contributions make an update. One place decides for a whole run."""

from __future__ import annotations

from typing import Any

import msgspec

from volary.comm.control.errors import BadMessage
from volary.comm.control.service import Replies
from volary.run.control.requests import Request
from volary.server.protocol.messages import (
    Acknowledged,
    Again,
    Ask,
    AskSave,
    Beat,
    Computed,
    Done,
    End,
    Evaluated,
    Figures,
    FromMember,
    Hello,
    Kept,
    Leave,
    Over,
    PartialNorms,
    Saved,
    SaveEnded,
    ServerHello,
    ServerWelcome,
    Unreachable,
    Welcome,
    WorkerHello,
)
from volary.server.roster.admission import WorkerAdmission
from volary.server.roster.closing import ConsistencyModel
from volary.server.roster.counters import RosterCounters
from volary.server.roster.members import Member, Members
from volary.server.roster.outgoing import Outgoing, Record
from volary.server.roster.progress import (
    Outcome,
    RosterContext,
    RosterSettings,
    RosterState,
    RunProgress,
    WorkReport,
)
from volary.server.roster.replicas import Replicas, ServerReplica
from volary.server.roster.snapshots import CheckpointStore

LOOK_S = 0.5  # at most this much time is seen to pass between two ticks: a roster that slept blames nobody for it
_OF_ONE = (Ask, Computed, Done)  # what a worker says of its own work
LEAVE_S = 5.0  # that workers have to go, once the run is over, before the servers are told

__all__ = ["CheckpointStore", "Outcome", "Roster", "RosterSettings", "RosterState"]


class Roster:
    """The service "roster" of a run's server (see volary.comm.control.service).

    restored: the step of the checkpoint that the run resumes from, and its roster's state. outcome: how the run ended,
    once it has. failure: why it cannot go on, if it cannot: a sentence. Raises SettingError if the model cannot be had
    with so many workers. lost_server: the server whose loss that is, if one's, and what happened to it. corrupt: the
    same sentence, if data's fault.
    """

    def __init__(
        self,
        settings: RosterSettings,
        model: ConsistencyModel,
        keeping: CheckpointStore,
        record: Record,
        restored: tuple[int, dict[str, Any]] | None = None,
    ) -> None:
        self.outcome: Outcome | None = None
        self.failure = ""
        self.lost_server: tuple[int, str] | None = None
        self.corrupt = ""
        self._settings, self._model, self._keeping = settings, model, keeping
        self._restore = restored[0] if restored else None
        self._state = state = msgspec.convert(restored[1], RosterState) if restored else RosterState()
        self._closer = model.closer(settings.workers, state.closings, state.samples)
        self._members = Members(settings.workers)
        self._replicas = Replicas(settings.servers, settings.replicas, settings.give_up_after_s)
        self._outgoing, self._counters = Outgoing(self._members, self._replicas, record), RosterCounters()
        self._admission = WorkerAdmission(None if model.elastic else settings.workers, self._members)
        self._progress: RunProgress | None = None
        self._stopping = False
        self._requests: list[Request] = []
        self._last_gone: tuple[str, str] | None = None  # of those that were here: whether it has left or is lost, told
        self._now: float | None = None
        self._seen_s = 0.0  # time that was watched
        self._over_at = 0.0

    @property
    def awaited(self) -> list[str]:
        """The members that have yet to come before the run begins."""
        return [f"rank {rank}" for rank in self._members.awaited] + [f"server {n}" for n in self._replicas.awaited]

    @property
    def samples(self) -> int:
        """Samples that all updates so far have learnt from."""
        return self._progress.work.samples if self._progress else self._state.samples

    @property
    def steps(self) -> int:
        """Whole batches that all updates so far have learnt from."""
        return self._progress.steps if self._progress else self._restore or 0

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
            self._outgoing.dismiss(member.peer, End(f"rank {rank} was given up: it {reason}"))
        self._worker_gone(rank, "lost", reason, now)
        return self._replies(now)

    def left(self, rank: int, now: float) -> Replies:
        """A worker has gone by itself; what the roster did not know of is that one that was let in will not come."""
        if self._members.of(rank) is None:
            self._worker_gone(rank, "left", "has left", now)
        return self._replies(now)

    def expect(self, rank: int) -> None:
        """A worker is let in, and will come unless it is given up: until then the run has one that is left."""
        self._members.expect(rank)

    def finish(self, now: float) -> Replies:
        self._stopping = True
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
            self._admit_worker(peer, who)
        else:
            self._admit_server(peer, who)
        return self._replies(now)

    def received(self, peer: int, message: Any, now: float) -> Replies:
        """A message has come. Raises BadMessage if it makes no sense."""
        report = _converted(message, FromMember)
        progress = self._progress
        held_by = progress.work.held_by if progress else None
        if (member := self._members.at(peer)) is not None:
            self._take_from_worker(member, report, now)
        elif (server := self._replicas.at(peer)) is not None:
            server.heard_at = self._seen_s
            self._take_from_server(server, report)
        # mostly what one does gives the others nothing to do, of whom there may be thousands
        alone = progress and isinstance(report, _OF_ONE) and held_by is not None and progress.work.held_by == held_by
        return self._replies(now, member if alone else None)  # what somebody says who was given up is passed over

    def closed(self, peer: int, now: float) -> Replies:
        if (member := self._members.at(peer)) is not None:
            self._worker_gone(member.rank, "lost", "has closed its connection", now)
        elif (server := self._replicas.at(peer)) is not None:
            self._server_gone(server, "has gone")
        return self._replies(now)

    def tick(self, now: float) -> Replies:
        self._seen_s += min(now - self._now, LOOK_S) if self._now is not None else 0.0
        self._now = now
        for server in self._replicas.silent(self._seen_s):
            self._outgoing.dismiss(server.peer, End(f"server {server.number} was silent for too long"))
            self._server_gone(server, "is silent: it is stopped, or its host is gone")
        if self._progress is not None:
            self._progress.announce(self._progress.work.tick(now))
            self._progress.snapshots.tick(now)
        if self._counters.due(now):
            self._outgoing.record("counts", None, {"rows": self._counters.taken(now)})
        return self._replies(now)

    # Coming and going

    def _admit_worker(self, peer: int, hello: WorkerHello) -> None:
        if why_not := self.outcome or self._admission.refusal(hello):
            self._outgoing.dismiss(peer, End(why_not))
            return
        self._members.add(peer, hello.rank)
        self._outgoing.record("joined", hello.rank, {"step": self.steps})
        first = self._admission.first or hello
        self._outgoing.to(peer, Welcome(hello.rank, first.facts, self._restore))
        if self._progress is not None:
            self._progress.work.join(hello.rank)
            self._outgoing.to(peer, self._replicas.view())
            if self._progress.rate is not None:
                self._outgoing.to(peer, self._progress.rate)

    def _worker_gone(self, rank: int, kind: str, reason: str, now: float) -> None:
        was_here = self._members.of(rank) is not None
        if not self._members.gone(rank) or self.outcome is not None:
            return
        self._outgoing.record(kind, rank, {"step": self.steps, "reason": reason})
        if not self._model.elastic:
            self._fail(f"rank {rank} {reason}, and this consistency model needs every worker")
            return
        if was_here or self._last_gone is None:
            self._last_gone = kind, f"rank {rank} {reason}"
        if self._members.nobody:
            self._without_workers(*self._last_gone)
        if self._progress is not None and was_here and not self.failure:
            self._progress.leave(rank, now)

    def _without_workers(self, kind: str, sentence: str) -> None:
        """The last one has left, and what is done is saved; or it is lost, and the run with it."""
        if kind == "lost" or self._progress is None:
            self._fail(f"{sentence}, and no worker is left")
        else:
            self._stopping = True

    def _admit_server(self, peer: int, hello: ServerHello) -> None:
        if hello.number < 0:
            raise BadMessage(f"a server says that its number is {hello.number}")
        address = (hello.host, hello.port)
        if self.outcome is not None or not self._replicas.add(peer, hello.number, address, self._seen_s):
            self._outgoing.dismiss(peer, End(f"there is no place for a server {hello.number} in this run (any more)"))
            return
        self._outgoing.to(peer, ServerWelcome(self._restore, self._state.closings))

    def _server_gone(self, server: ServerReplica, reason: str) -> None:
        self._replicas.gone(server.peer)
        if self.outcome is not None or self.failure:
            return
        if self._progress is None:
            self._fail(f"server {server.number} {reason} before training began", (server.number, reason))
        elif self._replicas.orphans:
            sentence = f"server {server.number} {reason}, and no other server keeps its part of the parameters"
            self._fail(sentence, (server.number, reason))
        else:
            self._outgoing.record("server_lost", None, {"step": self.steps, "server": server.number, "reason": reason})
            self._send_view()
            self._progress.snapshots.server_gone()

    def _fail(self, sentence: str, lost_server: tuple[int, str] | None = None) -> None:
        if not self.failure:
            self.failure, self.lost_server = sentence, lost_server

    def _send_view(self) -> None:
        view = self._replicas.view()
        self._outgoing.to_workers(view)
        self._outgoing.to_servers(view)

    # What they say

    def _take_from_worker(self, member: Member, report: Any, now: float) -> None:
        match report:
            case Ask():
                member.ask(now)
            case Leave() if not self._model.elastic:
                self._stopping = True  # whoever asks one worker to go means the run, which needs each of them
            case Leave():
                self._outgoing.dismiss(member.peer, End("it wanted to leave"))
                self._worker_gone(member.rank, "left", "has left", now)
            case Again() if self._progress is not None:
                self._progress.again(member.rank, report.clock, now)
            case Over():
                self._loop_over(member, now)
            case AskSave():
                self._loop_saves(member, report.clock)
            case Unreachable():
                self._cannot_reach(member, report.server, now)
            case Computed() | Done() | Evaluated() | Figures() | Saved():
                self._take_work(member.rank, report, now)
            case _:
                raise BadMessage(f"rank {member.rank} says what only a server says: {type(report).__name__}")

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
            self._fail(corrupt)

    def _cannot_reach(self, member: Member, server: int, now: float) -> None:
        """The one of the two that others have lost, too, has to go."""
        replica = self._replicas.of(server)
        if replica is None:
            return  # it is known, and the view is on its way
        replica.unreachable_by.add(member.rank)
        here = [each.rank for each in self._members]
        if 2 * len(replica.unreachable_by.intersection(here)) > len(here):
            self._outgoing.dismiss(replica.peer, End(f"server {server} cannot be reached by workers"))
            self._server_gone(replica, f"cannot be reached by rank {member.rank}")
        else:
            self._outgoing.dismiss(member.peer, End(f"rank {member.rank} cannot reach server {server}, and others can"))
            self._worker_gone(member.rank, "lost", f"cannot reach server {server}", now)

    def _take_from_server(self, server: ServerReplica, report: Any) -> None:
        if isinstance(report, Beat):
            server.applied = report.applied
            self._counters.beat(server.number, report)
            self._outgoing.to(server.peer, Acknowledged())
        elif not isinstance(report, Kept | PartialNorms | Saved):
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
            elif self._stopping:
                self._end("stopped", now)
        if self.outcome is not None and len(self._replicas):
            self._dismiss_servers(now)
        return self._outgoing.taken()

    def _begin(self, now: float) -> None:
        """Begin the work once everybody is here."""
        if self._progress is not None or self._admission.first is None or self.awaited or not len(self._members):
            return
        self._progress = RunProgress(
            self._settings,
            self._model,
            self._closer,
            self._admission.first,
            self._state,
            RosterContext(self._outgoing, self._replicas, self._keeping, self._counters),
        )
        for member in self._members:
            self._progress.work.join(member.rank)
        for member in self._members:
            self._progress.work.take_part(member.rank, now)
        self._send_view()

    def _go_on(self, progress: RunProgress, now: float, alone: Member | None) -> None:
        progress.do(self._requests)
        self._requests = []
        progress.save_for_loops(self._members, elastic=self._model.elastic)
        if self._stopping:
            progress.stop()
        elif len(self._members) and all(member.over for member in self._members):
            progress.loops_over()
        progress.hand_out(self._members, alone, now)
        progress.end_if_over()
        if progress.over:
            self._end(progress.ending or "stopped", now)

    def _end(self, outcome: Outcome, now: float) -> None:
        self.outcome, self._over_at = outcome, now
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
