"""Workers and servers come to a run and go: who is let in, and what follows when one is gone."""

from __future__ import annotations

from typing import TYPE_CHECKING

from volary.comm.control.errors import BadMessage
from volary.server.membership.admission import WorkerAdmission
from volary.server.membership.members import Member, Members
from volary.server.membership.outgoing import Outgoing, Record
from volary.server.membership.replicas import Replicas, ServerReplica
from volary.server.protocol.to_members import End, ServerWelcome, Welcome

if TYPE_CHECKING:
    from volary.server.protocol.hello import ServerHello, WorkerHello
    from volary.server.roster.progress import RunProgress
    from volary.server.roster.settings import RosterSettings
    from volary.server.roster.state import Outcome


class Attendance:
    """Knows the members of a run, and whether it can continue without those that are gone.

    elastic: it can do with any number of workers. restored: the step of the checkpoint that it resumes from, and how
    many updates that stands for. progress: of its work, once it has begun. outcome: how it ended, once it has. failure:
    why it cannot continue, in a sentence; lost_server: the server whose loss that is, and what happened to it.
    stopping: it ends after the current work.
    """

    def __init__(
        self, settings: RosterSettings, record: Record, *, elastic: bool, restored: tuple[int | None, int]
    ) -> None:
        self.progress: RunProgress | None = None
        self.outcome: Outcome | None = None
        self.failure = ""
        self.lost_server: tuple[int, str] | None = None
        self.stopping = False
        self.members = Members(settings.workers)
        self.replicas = Replicas(settings.servers, settings.replicas, settings.give_up_after_s)
        self.outgoing = Outgoing(self.members, self.replicas, record)
        self.admission = WorkerAdmission(None if elastic else settings.workers, self.members)
        self._called = settings.called
        self._elastic, (self._restore, self._applied) = elastic, restored
        self._last_gone: tuple[str, str] | None = None  # of workers that were here: "left" or "lost", and a sentence

    @property
    def awaited(self) -> list[str]:
        """The members that have yet to come before the run begins."""
        return [self._called(rank) for rank in self.members.awaited] + [f"server {n}" for n in self.replicas.awaited]

    @property
    def steps(self) -> int:
        """Whole batches that all updates so far have learnt from."""
        return self.progress.steps if self.progress else self._restore or 0

    def fail(self, sentence: str, lost_server: tuple[int, str] | None = None) -> None:
        """The run cannot continue. The first reason stays."""
        if not self.failure:
            self.failure, self.lost_server = sentence, lost_server

    def send_view(self) -> None:
        """Tell everybody which servers there are."""
        view = self.replicas.view()
        self.outgoing.to_workers(view)
        self.outgoing.to_servers(view)

    def admit_worker(self, peer: int, hello: WorkerHello) -> None:
        """A worker has come: it is welcome, or hears why not. Raises BadMessage if its hello makes no sense."""
        if why_not := self.outcome or self.admission.refusal(hello):
            self.outgoing.dismiss(peer, End(why_not))
            return
        self.members.add(peer, hello.rank)
        self.outgoing.record("joined", hello.rank, {"step": self.steps})
        first = self.admission.first or hello
        self.outgoing.to(peer, Welcome(hello.rank, first.facts, self._restore))
        if self.progress is not None:
            self.progress.work.join(hello.rank)
            self.outgoing.to(peer, self.replicas.view())
            if self.progress.rate is not None:
                self.outgoing.to(peer, self.progress.rate)

    def admit_server(self, peer: int, hello: ServerHello, now: float) -> None:
        """A server has come: it is welcome, or hears why not. Raises BadMessage if its hello makes no sense."""
        if hello.number < 0:
            raise BadMessage(f"a server says that its number is {hello.number}")
        address = (hello.host, hello.port)
        if self.outcome is not None or not self.replicas.add(peer, hello.number, address, now):
            self.outgoing.dismiss(peer, End(f"there is no place for a server {hello.number} in this run (any more)"))
            return
        self.outgoing.to(peer, ServerWelcome(self._restore, self._applied))

    def worker_gone(self, rank: int, kind: str, reason: str, now: float) -> None:
        """A worker is gone. kind: "left" or "lost"."""
        was_here = self.members.of(rank) is not None
        if not self.members.gone(rank) or self.outcome is not None:
            return
        self.outgoing.record(kind, rank, {"step": self.steps, "reason": reason})
        if not self._elastic:
            self.fail(f"{self._called(rank)} {reason}, and this consistency model needs every worker")
            return
        if was_here or self._last_gone is None:
            self._last_gone = kind, f"{self._called(rank)} {reason}"
        if self.members.nobody:
            self._without_workers(*self._last_gone)
        if self.progress is not None and was_here and not self.failure:
            self.progress.leave(rank, now)

    def server_gone(self, server: ServerReplica, reason: str) -> None:
        """A server is gone, for ever."""
        self.replicas.gone(server.peer)
        if self.outcome is not None or self.failure:
            return
        if self.progress is None:
            self.fail(f"server {server.number} {reason} before training began", (server.number, reason))
        elif self.replicas.orphans:
            sentence = f"server {server.number} {reason}, and no other server keeps its part of the parameters"
            self.fail(sentence, (server.number, reason))
        else:
            self.outgoing.record("server_lost", None, {"step": self.steps, "server": server.number, "reason": reason})
            self.send_view()
            self.progress.snapshots.server_gone()

    def cannot_reach(self, member: Member, server: int, now: float) -> None:
        """A worker cannot connect to a server: the one of the two that others have lost, too, has to go."""
        replica = self.replicas.of(server)
        if replica is None:
            return  # it is known, and the view is on its way
        replica.unreachable_by.add(member.rank)
        here = [each.rank for each in self.members]
        if 2 * len(replica.unreachable_by.intersection(here)) > len(here):
            self.outgoing.dismiss(replica.peer, End(f"server {server} cannot be reached by workers"))
            self.server_gone(replica, f"cannot be reached by {self._called(member.rank)}")
        else:
            who = self._called(member.rank)
            self.outgoing.dismiss(member.peer, End(f"{who} cannot reach server {server}, and others can"))
            self.worker_gone(member.rank, "lost", f"cannot reach server {server}", now)

    def _without_workers(self, kind: str, sentence: str) -> None:
        """The last one has left, and what is done is saved; or it is lost, and the run with it."""
        if kind == "lost" or self.progress is None:
            self.fail(f"{sentence}, and no worker is left")
        else:
            self.stopping = True
