"""The driver's end of the heartbeats: what workers say goes to the watch and into the journal."""

from __future__ import annotations

import json
import logging
import os
import socket
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Any

import msgspec

from volary.comm.control.errors import BadMessage
from volary.comm.control.service import CLOSE, GiveUpAfter, Replies
from volary.driver.attempt import reported_rows
from volary.driver.attempt.gathering import Gathering
from volary.driver.attempt.members import TrainingMembers, too_few
from volary.driver.watching.alike import Alike
from volary.driver.watching.failure_detector import FailureDetector, LostWorker, WorkerBeat, WorkerStatus
from volary.driver.watching.stacks import place
from volary.driver.watching.stragglers import Stragglers
from volary.driver.watching.worker_status import STARTING
from volary.run.control.requests import FIXED, LeaveRun
from volary.run.database.journal import Journal
from volary.run.database.network import LayerGraph
from volary.run.launch.members import TrainingReport
from volary.run.verdict import ENDED_WELL

_Event = tuple[str, int | None, int | None, dict[str, Any]]  # its kind, of which rank and step, more of it
_log = logging.getLogger(__name__)
EXPELLED = "was expelled by volary leave --now"


class Hello(msgspec.Struct):
    """The first message of a worker to the driver. trains: if it comes from another driver, which is lost."""

    rank: int
    pid: int
    host: str
    trains: TrainingReport | None = None


class HeartbeatService:
    """The service "pulse" of a run's server (see volary.comm.control.service).

    go_on_without: told the rank of each worker that is given up, and what happened to it, in a run that goes on then;
    None where it does not. left: told the rank of each that has left such a run by itself. begun_with: what its
    workers must know of the data that a run was begun with which is resumed. servers: whether it has any. members: of a
    run that goes on without servers, whose workers then meet again; others join and leave these. each: workers of
    neighbouring ranks that hold a replica together: without one of them the others are of no use.
    """

    def __init__(
        self,
        watch: FailureDetector,
        journal: Journal,
        go_on_without: Callable[[int, str, float], Replies] | None = None,
        left: Callable[[int, float], Replies] = lambda *_: (),
        begun_with: str = "",
        *,
        servers: bool = False,
        members: TrainingMembers | None = None,
        each: int = 1,
    ) -> None:
        self.watch = watch
        self._go_on_without, self._left = go_on_without, left
        waits_s = watch.rules.wait_for_driver_s
        words = {"begun_with": begun_with, "servers": servers, "wait_for_driver_s": waits_s}
        self._welcome = {name: value for name, value in words.items() if value}
        self._dismissed, self._members, self._each = 0, members, each
        self._journal = journal
        self._finishing = False
        self._requests: list[Any] = []
        self._warned_of_fault = False
        self._alike = Alike(watch.world_size)
        replaces = members is not None and watch.rules.replaces is not None
        self._gathering = Gathering(watch, members.now.ranks) if replaces and members is not None else None
        self._stragglers = Stragglers(lock_step=go_on_without is None or members is not None)

    def finish(self) -> Iterator[tuple[int, Any]]:
        """Ask all workers to end after their step, also those that are still to come."""
        self._finishing = True
        return self.notify({"finish": True})

    def ask(self, request: Any) -> Iterator[tuple[int, Any]]:
        """Ask all workers for something, in plain values, also those that are still to come."""
        self._requests.append(request)
        return self.notify({"requests": self._requests})

    def leave(self, request: LeaveRun) -> Iterator[tuple[int, Any]]:
        """Let a worker leave, or expel it, and the run go on; why that cannot be is a warning of the run."""
        rank, leaves = request.rank, self._members is not None and request.rank in self._members.leaving
        if why := "" if request.now and leaves else self._why_not_leave(rank):
            text = f"asked to {request.words}, which cannot be done: {why}"
            self._events([("warning", rank, None, {"text": text})])
            return
        self._event("asked", rank, self.watch.workers[rank].step, {"what": request.words})
        if request.now:
            yield from self.fell({rank: EXPELLED})
        elif self._members is None:
            yield self.watch.workers[rank].peer or 0, {"finish": True}
        else:
            self._members.leave(rank)
            yield from self._ask_members(self._members)

    def _why_not_leave(self, rank: int) -> str:
        if self._members is not None:
            return self._members.why_not_leave(rank)
        if self._go_on_without is None:
            return FIXED
        here = [worker.rank for worker in self.watch.workers.values() if worker.counts]
        if rank not in here:
            return f"rank {rank} does not train in this run; these do: {', '.join(map(str, here))}"
        return too_few(rank, len(here) - self._each, self.watch.rules.between)

    def end(self, reason: str) -> Iterator[tuple[int, Any]]:
        """The run is over, whoever is still here."""
        self._go_on_without = None
        return self.notify({"end": reason})

    def notify(self, message: dict[str, Any]) -> Iterator[tuple[int, Any]]:
        """Say something to every worker that is here."""
        for worker in self.watch.workers.values():
            if worker.here:
                yield worker.peer or 0, message

    def fell(self, ranks: Mapping[int, str]) -> Iterator[tuple[int, Any]]:
        """The processes of these workers have ended, each in these words, as the engine saw."""
        for rank, words in ranks.items():
            if not self.watch.workers[rank].goodbye:
                self.watch.fell(rank, words)
        yield from self._go_on(time.monotonic())

    def opened(self, peer: int, hello: dict[str, Any], now: float) -> Iterator[tuple[int, Any]]:
        """A worker has come: it is welcome, or told why not."""
        who = reported_rows.converted(hello, Hello)
        known = self.watch.workers.get(who.rank)
        again = known is not None and known.pid != 0
        if who.trains is not None and self._gathering is not None:
            self._gathering.arrived(who.rank, who.trains)
        late = who.trains is not None and self._gathering is None
        if late or not self.watch.joined(peer, who.rank, who.pid, who.host):
            yield peer, {"end": self._why_not(who.rank)}
            yield peer, CLOSE
            return
        worker = self.watch.workers[who.rank]
        limit = self.watch.rules.give_up_after_s
        joins = {"joins": True} if self._members is not None and who.rank >= self.watch.world_size else {}
        yield peer, {"welcome": True, "acknowledged": worker.beats, "give_up_after_s": limit, **self._welcome, **joins}
        yield from self._probe(peer, starting=worker.phase == STARTING)
        if self._finishing:
            yield peer, {"finish": True}
        if self._requests:
            yield peer, {"requests": self._requests}
        if self._members is not None and self._members.now.number:
            yield peer, _who_trains(self._members)
        if again:
            self._event("reconnected", who.rank, worker.step, {"host": who.host})
            return
        hosts = {worker.rank: worker.host for worker in self.watch.workers.values() if worker.here}
        self._journal.note(pids=json.dumps([os.getpid(), *self._pids_here()]), hosts=json.dumps(hosts))
        if who.rank >= self.watch.world_size and who.trains is None:
            self._event("joined", who.rank, 0, {"host": who.host, "pid": who.pid})

    def _probe(self, peer: int, *, starting: bool) -> Iterator[tuple[int, Any]]:
        """A machine answers for a process that cannot, as it imports torch; later a full link may delay the answers."""
        yield peer, GiveUpAfter(self.watch.rules.give_up_after_s if starting else None)

    def _why_not(self, rank: int) -> str:
        given_up = next((lost for lost in self.watch.lost if lost.rank == rank), None)
        if given_up is None:
            return f"there is no place for a rank {rank} in this run"
        return f"rank {rank} was given up: it {given_up.sentence}"

    def received(self, peer: int, message: Any, now: float) -> Iterator[tuple[int, Any]]:
        """A beat has come: it is answered, so that its worker knows that the driver is there and has it."""
        beat = reported_rows.converted(message, WorkerBeat)
        worker = self.watch.worker_at(peer)
        if worker is None:
            return
        if (starting := beat.phase == STARTING) != (worker.phase == STARTING):
            yield from self._probe(peer, starting=starting)
        if beat.number > worker.beats or not beat.number:  # else it came before its connection broke
            yield from self._take(peer, worker, beat, now)
        yield peer, {"acknowledged": worker.beats}

    def _take(self, peer: int, worker: WorkerStatus, beat: WorkerBeat, now: float) -> Iterator[tuple[int, Any]]:
        # written before the watch knows: after the last goodbye nobody waits for the journal
        if beat.rows:
            rows = [reported_rows.step_row(row) for row in beat.rows]
            self._journal.steps(rows)
            self._stragglers.did(worker.rank, rows)
        self._write(worker.rank, beat.events)
        self.watch.on_beat(peer, beat)
        if (
            self._go_on_without
            and beat.bye
            and not self.watch.is_cause(beat.bye)
            and beat.bye.outcome not in ENDED_WELL
            and not self._follows_another(worker.rank)
        ):
            self.watch.fell(worker.rank, beat.bye.ended)
        yield from self._go_on(now)
        if self._members is not None and self._gathering is None:
            yield from self._change_members(self._members, worker, beat)
        if self._go_on_without and beat.bye and beat.bye.outcome in ENDED_WELL:  # before it had begun, perhaps
            yield from self._left(worker.rank, now)
        if beat.bye:
            yield from self._end_spares()

    def _change_members(
        self, members: TrainingMembers, worker: WorkerStatus, beat: WorkerBeat
    ) -> Iterator[tuple[int, Any]]:
        """Let workers join and leave those that keep step."""
        if beat.bye and beat.bye.outcome == "left":
            if not worker.spare or worker.rank >= self.watch.world_size:
                self._event("left", worker.rank, worker.step, {"host": worker.host})
            if members.lose({worker.rank}, ()):  # as it was to begin
                yield from self._named(members)
        if beat.leaving and not members.why_not_leave(worker.rank):
            members.leave(worker.rank)
        members.ready(self.watch.joiners, self.watch.spares)
        if beat.paused is not None and members.paused(beat.paused):
            yield from self._named(members)
        yield from self._ask_members(members)

    def _ask_members(self, members: TrainingMembers) -> Iterator[tuple[int, Any]]:
        if (request := members.request()) is not None:
            yield from self.ask(msgspec.to_builtins(request))

    def _named(self, members: TrainingMembers) -> Iterator[tuple[int, Any]]:
        """Tell all who are here who trains from now on."""
        self.watch.enlist(members.now.ranks)
        yield from ((one.peer or 0, _who_trains(members)) for one in self.watch.workers.values() if one.counts)

    def _take_over(self, members: TrainingMembers, gathering: Gathering, now: float) -> Iterator[tuple[int, Any]]:
        """Name those that have come from a lost driver: they meet again, as after a loss."""
        self._gathering = None
        members.take_over(gathering.end(), self._journal.attempt)
        if gathering.requests:
            self._requests = list(gathering.requests)
            yield from self.notify({"requests": self._requests})
        yield from self._go_on(now)
        yield from self._named(members)

    @property
    def gathers(self) -> bool:
        """Whether workers that have lost another driver are waited for."""
        return self._gathering is not None

    def closed(self, peer: int, now: float) -> Iterator[tuple[int, Any]]:
        self.watch.left(peer)
        yield from self._go_on(now)

    def tick(self, now: float) -> Iterator[tuple[int, Any]]:
        for peer in self.watch.tick(now):
            yield peer, {"stack": True}
        for suspect in self.watch.suspects:
            self._warn_of(suspect)
        self.watch.suspects.clear()
        hosts = {worker.rank: worker.host for worker in self.watch.workers.values() if worker.counts}
        if (news := self._stragglers.look(hosts, now, linked=len(set(hosts.values())) > 1)) is not None:
            rank, data = news
            step = max(worker.step for worker in self.watch.workers.values())
            self._event("not_slow" if data.pop("over", False) else "slow", rank, step, data)
        if self._members is not None and self._gathering is not None and self._gathering.over(now):
            yield from self._take_over(self._members, self._gathering, now)
        yield from self._go_on(now)
        if self._journal.fault and not self._warned_of_fault:
            self._warned_of_fault = True
            _log.warning("%s; training goes on", self._journal.fault)

    def observed(self, here: Collection[int], working: Collection[int]) -> Iterator[tuple[int, Any]]:
        """Note what the engine sees of the workers' processes; see `FailureDetector.observed`."""
        self.watch.observed(here, working)
        return iter(())

    def _warn_of(self, suspect: LostWorker) -> None:
        worker = self.watch.workers[suspect.rank]
        stack = worker.stack if suspect.kind == "stuck" else ""
        part = f", {worker.part}" if worker.part else ""
        at = f"; it is at {where}" if (where := place(stack)) else ""
        data = {"reason": f"rank {suspect.rank} (host {worker.host}{part}) {suspect.sentence}{at}"}
        self._event("suspect", suspect.rank, worker.step, data | ({"stack": stack} if stack else {}))

    def _go_on(self, now: float) -> Iterator[tuple[int, Any]]:
        """Dismiss those that are newly given up, where the run goes on: should one come back, it learns so."""
        if self._go_on_without is None or self._gathering is not None:
            return
        before = self._dismissed
        while lost := next(iter(self.watch.lost[self._dismissed :]), None):
            self._dismissed += 1
            for rank in self._beside(lost.rank):
                self.watch.fell(rank, f"ended with rank {lost.rank}, which held the same replica")
            worker = self.watch.workers[lost.rank]
            self.watch.dismiss(lost.rank)
            part = {"part": worker.part} if worker.part else {}
            self._event("lost", lost.rank, worker.step, {"reason": lost.sentence, "host": worker.host, **part})
            yield from self._go_on_without(lost.rank, lost.sentence, now)
            if worker.peer is not None:
                yield worker.peer, {"end": self._why_not(lost.rank)}
                yield worker.peer, CLOSE
        if self._members is None or self._dismissed == before:
            return
        gone = {worker.rank for worker in self.watch.workers.values() if worker.dismissed or worker.goodbye}
        if self._members.lose(gone, self.watch.spares):
            yield from self._named(self._members)
        yield from self._ask_members(self._members)
        yield from self._end_spares()

    def _end_spares(self) -> Iterator[tuple[int, Any]]:
        """Let spare workers end once nobody trains any more."""
        if self._members is not None and all(self.watch.workers[rank].goodbye for rank in self._members.now.ranks):
            yield from self.notify({"finish": True})

    def _beside(self, rank: int) -> list[int]:
        """The others that hold the same replica as a worker, and have not ended well."""
        first = rank - rank % self._each
        others = [self.watch.workers[one] for one in range(first, first + self._each) if one != rank]
        return [one.rank for one in others if one.goodbye is None or one.goodbye.outcome not in ENDED_WELL]

    def _follows_another(self, rank: int) -> bool:
        """Whether one that holds the same replica may be the cause of a worker's end, and it will be known soon."""
        return any(not self.watch.workers[one].goodbye for one in self._beside(rank))

    def _pids_here(self) -> list[int]:
        """Workers on this machine, whoever started them, by rank."""
        host = socket.gethostname()
        return [worker.pid for worker in self.watch.workers.values() if worker.here and worker.host == host]

    def _write(self, rank: int, news: list[dict[str, Any]]) -> None:
        events: list[_Event] = []
        for one in news:
            match one:
                case {"event": "recovered", "step": int(step), "data": dict(data)} if self._members is not None:
                    events.append(("recovered", rank, step, self._with_leavers(data)))
                    gone = {*self.watch.workers, *data["lost"]}.difference(self._members.now.ranks)
                    self._journal.take_back(gone, step)
                case {"event": str(kind), "step": int(step), "data": dict(data)}:
                    events.append((kind, rank, step, data))
                case {"losses": list(losses), "drawn": dict(drawn)}:
                    events += _warnings(self._alike.did(rank, losses, drawn))
                case {"writes": str(path), "place": str(at)}:
                    events += _warnings(self._alike.writes(rank, self.watch.workers[rank].host, path, at))
                case {"metrics": dict(values), "step": int(step)}:
                    self._journal.metrics(step, values)
                case {"note": dict(facts)}:
                    self._journal.note(**facts)
                case {"counts": list(counts)}:
                    self._journal.counts(reported_rows.count_rows(rank, counts))
                case {"traffic": list(traffic)}:
                    self._journal.traffic(rank, reported_rows.traffic(traffic))
                case {"usage": list(usage)}:
                    self._journal.usage(reported_rows.usage(rank, usage))
                case {"histograms": list(found), "step": int(step)}:
                    self._journal.histograms(reported_rows.histograms(rank, step, found))
                case {"network": dict(graph)}:
                    self._journal.network(reported_rows.converted(graph, LayerGraph))
                case {"spans": list(spans)}:
                    self._journal.spans(reported_rows.spans(rank, spans))
                case _:
                    raise BadMessage(f"rank {rank} says something unknown: {sorted(one)}")
        self._events(events)

    def _with_leavers(self, data: dict[str, Any]) -> dict[str, Any]:
        """Tell those that have left from those that are lost, and those that have joined from spare workers."""
        more, left = data.pop("spares", ()), [rank for rank in data["lost"] if self._has_left(rank)]
        news = {
            "lost": [rank for rank in data["lost"] if rank not in left],
            "left": left,
            "spares": [rank for rank in more if rank < self.watch.world_size],
            "joined": [rank for rank in more if rank >= self.watch.world_size],
        }
        return data | {name: ranks for name, ranks in news.items() if ranks or name == "lost"}

    def _has_left(self, rank: int) -> bool:
        """Whether one that is gone was not lost; a driver that takes a lost one's place does not know all of them."""
        if (known := self.watch.workers.get(rank)) is not None:
            return not known.dismissed
        return any(rank in request.get("leaving", ()) for request in self._requests)

    def _event(self, kind: str, rank: int | None, step: int, data: dict[str, Any]) -> None:
        self._events([(kind, rank, step, data)])

    def _events(self, found: list[_Event]) -> None:
        """Into the journal; what a full disk keeps out of it is said here, or nobody would learn of it."""
        if not found:
            return

        def lost() -> None:
            for kind, rank, step, data in found:
                words = ", ".join(f"{name} {value}" for name, value in data.items())
                _log.warning("rank %s, step %d: %s: %s", rank, step, kind.replace("_", " "), words)

        self._journal.events(found, lost)


def _who_trains(members: TrainingMembers) -> dict[str, Any]:
    return {"members": {"ranks": members.now.ranks, "number": members.now.number}}


def _warnings(texts: Iterable[str]) -> Iterator[_Event]:
    return (("warning", None, None, {"text": text}) for text in texts)
