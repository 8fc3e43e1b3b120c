"""The roster: members, tasks, and which contributions make an update. One place decides for a whole run."""

from __future__ import annotations

from collections import deque
from typing import Any

import msgspec

from volary.comm.control.errors import BadMessage
from volary.comm.control.service import Replies
from volary.run.control.requests import ChangeRate, Request
from volary.server.protocol.messages import (
    Ask,
    AskSave,
    Beat,
    Computed,
    Done,
    End,
    Evaluated,
    Figures,
    FromMember,
    Gone,
    Heard,
    Hello,
    Kept,
    Leave,
    Over,
    PartialNorms,
    Rate,
    Saved,
    SaveEnded,
    ServerHello,
    ServerWelcome,
    Unreachable,
    Welcome,
    WorkerHello,
)
from volary.server.roster.closing import ConsistencyModel
from volary.server.roster.counters import RosterCounters
from volary.server.roster.keeping import CheckpointStore
from volary.server.roster.members import MOST_ASKS, Member, Members
from volary.server.roster.outgoing import Outgoing, Said
from volary.server.roster.progress import Outcome, RosterContext, RosterSettings, RosterState, RunProgress
from volary.server.roster.replicas import Replicas, ServerReplica

LOOK_S = 0.5  # at most this much time is seen to pass between two ticks: a roster that slept blames nobody for it
_OF_ONE = (Ask, Computed, Done)  # what a worker says of its own work
LEAVE_S = 5.0  # that workers have to go, once the run is over, before the servers are told

__all__ = ["CheckpointStore", "Outcome", "Roster", "RosterSettings", "RosterState"]


class Roster:
    """The service "roster" of a run's server (see volary.comm.control.service).

    restored: the step of the checkpoint that the run goes on from, and its roster's state. outcome: how the run ended,
    once it has. failure: why it cannot go on, if it cannot: a sentence. Raises SettingError if the model cannot be had
    with so many workers. lost_server: the server whose loss that is, if one's, and what happened to it. corrupt: the
    same sentence, if data's fault.
    """

    def __init__(
        self,
        terms: RosterSettings,
        model: ConsistencyModel,
        keeping: CheckpointStore,
        said: Said,
        restored: tuple[int, dict[str, Any]] | None = None,
    ) -> None:
        self.outcome: Outcome | None = None
        self.failure = ""
        self.lost_server: tuple[int, str] | None = None
        self.corrupt = ""
        self._terms, self._model, self._keeping = terms, model, keeping
        self._restore = restored[0] if restored else None
        self._state = state = msgspec.convert(restored[1], RosterState) if restored else RosterState()
        self._closer = model.closer(terms.workers, state.closings, state.samples)
        self._members = Members(terms.workers)
        self._replicas = Replicas(terms.servers, terms.replicas, terms.give_up_after_s)
        self._outgoing, self._counters = Outgoing(self._members, self._replicas, said), RosterCounters()
        self._first: WorkerHello | None = None
        self._progress: RunProgress | None = None
        self._stopping = False
        self._requests: list[Request] = []
        self._rate: Rate | None = None  # of the newest change
        self._unreachable: dict[int, set[int]] = {}  # server to the workers that cannot reach it
        self._last_gone: tuple[str, str] | None = None  # of those that were here: whether it has left or is lost, told
        self._buried: list[int] = []  # ranks that have gone while something of theirs is in no update yet
        self._now: float | None = None
        self._seen_s = 0.0  # time that was watched
        self._over_at = 0.0

    @property
    def awaited(self) -> list[str]:
        """Who has yet to come before the run begins."""
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
        return self._said(now)

    def left(self, rank: int, now: float) -> Replies:
        """A worker has gone by itself; what the roster did not know of is that one that was let in will not come."""
        if self._members.of(rank) is None:
            self._worker_gone(rank, "left", "has left", now)
        return self._said(now)

    def expect(self, rank: int) -> None:
        """A worker is let in, and will come unless it is given up: until then the run has one that is left."""
        self._members.expect(rank)

    def finish(self, now: float) -> Replies:
        self._stopping = True
        return self._said(now)

    def ask(self, request: Request, now: float) -> Replies:
        """Do what the run is asked to do with the next update, or with the first one."""
        self._requests.append(request)
        return self._said(now)

    # What members say

    def opened(self, peer: int, hello: dict[str, Any], now: float) -> Replies:
        """A worker or a server has come: it is welcome, or told why not."""
        who = _converted(hello, Hello)
        if isinstance(who, WorkerHello):
            self._worker_came(peer, who)
        else:
            self._server_came(peer, who)
        return self._said(now)

    def received(self, peer: int, message: Any, now: float) -> Replies:
        """A message has come. Raises BadMessage if it makes no sense."""
        said = _converted(message, FromMember)
        held_by = self._held_by
        if (member := self._members.at(peer)) is not None:
            self._hear_worker(member, said, now)
        elif (server := self._replicas.at(peer)) is not None:
            server.heard_at = self._seen_s
            self._hear_server(server, said)
        # mostly what one does gives the others nothing to do, of whom there may be thousands
        alone = isinstance(said, _OF_ONE) and held_by is not None and self._held_by == held_by
        return self._said(now, member if alone else None)  # what somebody says who was given up is passed over

    def closed(self, peer: int, now: float) -> Replies:
        if (member := self._members.at(peer)) is not None:
            self._worker_gone(member.rank, "lost", "has closed its connection", now)
        elif (server := self._replicas.at(peer)) is not None:
            self._server_gone(server, "has gone")
        return self._said(now)

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
            self._outgoing.said("counts", None, {"rows": self._counters.taken(now)})
        return self._said(now)

    # Coming and going

    def _worker_came(self, peer: int, hello: WorkerHello) -> None:
        _check(hello)
        if why_not := self._why_not(hello.rank):
            self._outgoing.dismiss(peer, End(why_not))
            return
        self._first = self._first or hello
        if _sizes(hello) != _sizes(self._first):
            self._outgoing.dismiss(peer, End("its data has another number of samples than that of the first worker"))
            return
        self._members.came(peer, hello.rank)
        self._outgoing.said("joined", hello.rank, {"step": self.steps})
        self._outgoing.to(peer, Welcome(hello.rank, self._first.facts, self._restore))
        if self._progress is not None:
            self._progress.work.join(hello.rank)
            self._outgoing.to(peer, self._replicas.view())
            if self._rate is not None:
                self._outgoing.to(peer, self._rate)

    def _why_not(self, rank: int) -> str:
        """Why a worker cannot come; how the run has ended, if it has."""
        if self.outcome is not None:
            return self.outcome
        if rank >= self._terms.workers and not self._model.elastic:
            return f"there is no place for a rank {rank} in this run"
        return f"rank {rank} was here before" if self._members.was_here(rank) else ""

    def _worker_gone(self, rank: int, kind: str, reason: str, now: float) -> None:
        was_here = self._members.of(rank) is not None
        if not self._members.gone(rank) or self.outcome is not None:
            return
        self._outgoing.said(kind, rank, {"step": self.steps, "reason": reason})
        if not self._model.elastic:
            self._fail(f"rank {rank} {reason}, and this consistency model needs every worker")
            return
        if was_here or self._last_gone is None:
            self._last_gone = kind, f"rank {rank} {reason}"
        if self._members.nobody:
            self._without_workers(*self._last_gone)
        if self._progress is not None and was_here and not self.failure:
            self._progress.snapshots.left(rank)
            self._progress.announce(self._progress.work.leave(rank, now))
            self._buried.append(rank)

    def _without_workers(self, kind: str, sentence: str) -> None:
        """The last one has left, and what is done is saved; or it is lost, and the run with it."""
        if kind == "lost" or self._progress is None:
            self._fail(f"{sentence}, and no worker is left")
        else:
            self._stopping = True

    def _server_came(self, peer: int, hello: ServerHello) -> None:
        if hello.number < 0:
            raise BadMessage(f"a server says that its number is {hello.number}")
        address = (hello.host, hello.port)
        if self.outcome is not None or not self._replicas.came(peer, hello.number, address, self._seen_s):
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
            self._outgoing.said("server_lost", None, {"step": self.steps, "server": server.number, "reason": reason})
            self._tell_view()
            self._progress.snapshots.server_gone()

    def _fail(self, sentence: str, lost_server: tuple[int, str] | None = None) -> None:
        if not self.failure:
            self.failure, self.lost_server = sentence, lost_server

    def _tell_view(self) -> None:
        view = self._replicas.view()
        self._outgoing.to_workers(view)
        self._outgoing.to_servers(view)

    # What they say

    def _hear_worker(self, member: Member, said: Any, now: float) -> None:
        match said:
            case Ask():
                self._asked(member, now)
            case Leave() if not self._model.elastic:
                self._stopping = True  # whoever asks one worker to go means the run, which needs each of them
            case Leave():
                self._outgoing.dismiss(member.peer, End("it wanted to leave"))
                self._worker_gone(member.rank, "left", "has left", now)
            case Over():
                self._loop_over(member, now)
            case AskSave():
                self._loop_saves(member, said.clock)
            case Unreachable():
                self._cannot_reach(member, said.server, now)
            case Computed() | Done() | Evaluated() | Figures() | Saved():
                self._hear_of_work(member.rank, said, now)
            case _:
                raise BadMessage(f"rank {member.rank} says what only a server says: {type(said).__name__}")

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

    def _asked(self, member: Member, now: float) -> None:
        if member.asks == MOST_ASKS:
            raise BadMessage(f"rank {member.rank} asks for more than {MOST_ASKS} things at once")
        member.asked_at = member.asked_at if member.asks else now
        member.asks += 1

    def _hear_of_work(self, rank: int, said: Computed | Done | Evaluated | Figures | Saved, now: float) -> None:
        if self._progress is None:
            raise BadMessage(f"rank {rank} reports on work before there was any")
        match said:
            case Computed():
                self._progress.announce(self._progress.work.computed(rank, said, now))
                if said.lost and (corrupt := self._progress.corrupt):
                    self.corrupt = corrupt
                    self._fail(corrupt)
            case Done():
                self._progress.announce(self._progress.work.done(rank, said.clock, now, said.clip))
                self._counters.waited(rank, said.waited_ms)
            case Evaluated():
                self._progress.snapshots.evaluated(rank, said)
            case Figures():
                self._progress.figures(rank, said)
            case Saved():
                self._progress.snapshots.own_saved(rank, said)

    def _cannot_reach(self, member: Member, server: int, now: float) -> None:
        """The one of the two that others have lost, too, has to go."""
        replica = self._replicas.of(server)
        if replica is None:
            return  # it is known, and the view is on its way
        blaming = self._unreachable.setdefault(server, set())
        blaming.add(member.rank)
        here = [each.rank for each in self._members]
        if 2 * len(blaming.intersection(here)) > len(here):
            self._outgoing.dismiss(replica.peer, End(f"server {server} cannot be reached by workers"))
            self._server_gone(replica, f"cannot be reached by rank {member.rank}")
        else:
            self._outgoing.dismiss(member.peer, End(f"rank {member.rank} cannot reach server {server}, and others can"))
            self._worker_gone(member.rank, "lost", f"cannot reach server {server}", now)

    def _hear_server(self, server: ServerReplica, said: Any) -> None:
        if isinstance(said, Beat):
            server.applied = said.applied
            self._counters.beat(server.number, said)
            self._outgoing.to(server.peer, Heard())
        elif not isinstance(said, Kept | PartialNorms | Saved):
            raise BadMessage(f"server {server.number} says what only a worker says: {type(said).__name__}")
        elif self._progress is None:
            raise BadMessage(f"server {server.number} reports on an update before there was any")
        elif isinstance(said, Kept):
            self._progress.snapshots.kept(server.number, said.snapshot)
        elif isinstance(said, PartialNorms):
            self._progress.norms.measured(server.number, said)
        else:
            self._progress.snapshots.saved(server.number, said)

    # What follows from it

    @property
    def _held_by(self) -> tuple[int, ...] | None:
        return self._progress.work.held_by if self._progress else None

    def _said(self, now: float, alone: Member | None = None) -> Replies:
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
        """Once everybody is here, the work begins."""
        if self._progress is not None or self._first is None or self.awaited or not len(self._members):
            return
        self._progress = RunProgress(
            self._terms,
            self._model,
            self._closer,
            self._first,
            self._state,
            RosterContext(self._outgoing, self._replicas, self._keeping, self._counters),
        )
        for member in self._members:
            self._progress.work.join(member.rank)
        for member in self._members:
            self._progress.work.take_part(member.rank, now)
        self._tell_view()

    def _go_on(self, progress: RunProgress, now: float, alone: Member | None) -> None:
        self._do_what_is_asked(progress)
        self._save_for_loops(progress)
        if self._stopping:
            progress.stop()
        elif len(self._members) and all(member.over for member in self._members):
            progress.loops_over()
        asking = deque(self._members.asking() if alone is None else [alone] if alone.asks else [])
        while asking:
            member = asking.popleft()
            number, held_by = progress.work.number, progress.work.held_by
            if (task := progress.task(member, now)) is not None:
                member.asks -= 1
                self._outgoing.to(member.peer, task)
            again = task is not None and member.asks
            if (progress.work.number, progress.work.held_by) != (number, held_by) or (again and held_by is None):
                asking = deque(self._members.asking())  # there may be something for others now
            elif again:
                asking.appendleft(member)
        progress.end_if_over()
        self._bury(progress)
        if progress.over:
            self._end(progress.ending or "stopped", now)

    def _do_what_is_asked(self, progress: RunProgress) -> None:
        """With the next update; what was changed is saved, so that a resumed run begins with it."""
        for request in self._requests:
            progress.save_soon()
            if isinstance(request, ChangeRate):
                self._rate = Rate(progress.work.samples, request.lr)
                self._outgoing.to_servers(self._rate)
                self._outgoing.to_workers(self._rate)
        self._requests = []

    def _save_for_loops(self, progress: RunProgress) -> None:
        """Once all have asked for it who keep step, and what they have finished is in an update."""
        saving = {member.rank: member.saves for member in self._members if member.saves is not None}
        going_on = any(member.saves is None and not member.over for member in self._members)
        under_way = any(
            task.contribution.clock < clock for rank, clock in saving.items() for task in progress.work.tasks(rank)
        )
        if saving and not under_way and (self._model.elastic or not going_on):
            for member in self._members:
                member.saves = None
            progress.save_for_loops(list(saving))

    def _bury(self, progress: RunProgress) -> None:
        """Servers may forget a worker once all that it finished is in an update."""
        for rank in [rank for rank in self._buried if not progress.work.tasks(rank)]:
            self._buried.remove(rank)
            self._outgoing.to_servers(Gone(rank))

    def _end(self, outcome: Outcome, now: float) -> None:
        self.outcome, self._over_at = outcome, now
        self._outgoing.said("counts", None, {"rows": self._counters.taken(now)})
        self._outgoing.to_workers(End(outcome, self.unsaved))

    def _dismiss_servers(self, now: float) -> None:
        """Once the workers have gone, the servers may go."""
        if not len(self._members) or now - self._over_at > LEAVE_S:
            for server in self._replicas:
                self._outgoing.dismiss(server.peer, End(self.outcome or "stopped"))
                self._replicas.gone(server.peer)


def _sizes(hello: WorkerHello) -> tuple[int, int, int]:
    return hello.samples, hello.held_back, hello.batch_size


def _check(hello: WorkerHello) -> None:
    if hello.rank < 0 or hello.samples < 1 or hello.held_back < 0 or hello.batch_size < 0:
        raise BadMessage(f"rank {hello.rank} says that it has {hello.samples} samples, and {hello.held_back} held back")


def _converted(message: Any, kind: Any) -> Any:
    try:
        return msgspec.convert(message, kind)
    except msgspec.ValidationError as error:
        raise BadMessage(str(error)) from None
