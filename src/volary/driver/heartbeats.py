"""The driver's end of the heartbeats: what workers say goes to the watch and into the journal."""

from __future__ import annotations

import json
import logging
import math
import os
import socket
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Annotated, Any, TypeVar

import msgspec

from volary.comm.control.errors import BadMessage
from volary.comm.control.service import CLOSE, GiveUpAfter, Replies
from volary.driver.watching.alike import Alike
from volary.driver.watching.failure_detector import FailureDetector, LostWorker, WorkerBeat, WorkerStatus
from volary.driver.watching.stacks import place
from volary.driver.watching.stragglers import Stragglers
from volary.driver.watching.worker_status import STARTING
from volary.run.database.counts import CountRow
from volary.run.database.histograms import Histogram
from volary.run.database.journal import STEP_FIELDS, Journal, StepRow
from volary.run.database.network import LayerGraph
from volary.run.database.spans import Span
from volary.run.database.traffic import Traffic
from volary.run.database.usage import Usage
from volary.run.launch.members import GroupMembers
from volary.run.verdict import ENDED_WELL

_Wanted = TypeVar("_Wanted")
_Event = tuple[str, int | None, int | None, dict[str, Any]]  # its kind, of which rank and step, more of it
_log = logging.getLogger(__name__)
_Whole = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]
_Server = Annotated[int, msgspec.Meta(ge=-1, le=2**31)]


class Hello(msgspec.Struct):
    """The first message of a worker to the driver."""

    rank: int
    pid: int
    host: str


class HeartbeatService:
    """The service "pulse" of a run's server (see volary.comm.control.service).

    go_on_without: told the rank of each worker that is given up, and what happened to it, in a run that goes on then;
    None where it does not. left: told the rank of each that has left such a run by itself. begun_with: what its
    workers must know of the data that a run was begun with which is resumed. servers: whether it has any. members: of a
    run that goes on without servers, whose workers then meet again. each: workers of neighbouring ranks that hold a
    replica together: without one of them the others are of no use.
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
        members: GroupMembers | None = None,
        each: int = 1,
    ) -> None:
        self.watch = watch
        self._go_on_without, self._left = go_on_without, left
        self._welcome = ({"begun_with": begun_with} if begun_with else {}) | ({"servers": True} if servers else {})
        self._dismissed, self._members, self._each = 0, members, each
        self._journal = journal
        self._finishing = False
        self._requests: list[Any] = []
        self._warned_of_fault = False
        self._alike = Alike(watch.world_size)
        self._stragglers = Stragglers(lock_step=go_on_without is None or members is not None)

    def finish(self) -> Iterator[tuple[int, Any]]:
        """Ask all workers to end after their step, also those that are still to come."""
        self._finishing = True
        return self.notify({"finish": True})

    def ask(self, request: Any) -> Iterator[tuple[int, Any]]:
        """Ask all workers for something, in plain values, also those that are still to come."""
        self._requests.append(request)
        return self.notify({"requests": self._requests})

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
        who = _converted(hello, Hello)
        known = self.watch.workers.get(who.rank)
        again = known is not None and known.pid != 0
        if not self.watch.joined(peer, who.rank, who.pid, who.host):
            yield peer, {"end": self._why_not(who.rank)}
            yield peer, CLOSE
            return
        worker = self.watch.workers[who.rank]
        limit = self.watch.rules.give_up_after_s
        yield peer, {"welcome": True, "acknowledged": worker.beats, "give_up_after_s": limit, **self._welcome}
        yield from self._probe(peer, starting=worker.phase == STARTING)
        if self._finishing:
            yield peer, {"finish": True}
        if self._requests:
            yield peer, {"requests": self._requests}
        if self._members is not None and self._members.number:
            yield peer, self._who_trains(self._members)
        if again:
            self._event("reconnected", who.rank, worker.step, {"host": who.host})
            return
        hosts = {worker.rank: worker.host for worker in self.watch.workers.values() if worker.here}
        self._journal.note(pids=json.dumps([os.getpid(), *self._pids_here()]), hosts=json.dumps(hosts))
        if who.rank >= self.watch.world_size:
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
        beat = _converted(message, WorkerBeat)
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
            rows = [_row(row) for row in beat.rows]
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
            self.watch.fell(worker.rank, f"ended: {beat.bye.reason}")
        yield from self._go_on(now)
        if self._go_on_without and beat.bye and beat.bye.outcome in ENDED_WELL:  # before it had begun, perhaps
            yield from self._left(worker.rank, now)
        if beat.bye:
            yield from self._end_spares()

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
        if self._go_on_without is None:
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
        workers = self.watch.workers.values()
        gone = {worker.rank for worker in workers if worker.dismissed or worker.goodbye}
        if gone.intersection(self._members.ranks):
            self._members = self._members.without(gone, self.watch.spares)
            self.watch.enlist(self._members.ranks)
            yield from ((one.peer or 0, self._who_trains(self._members)) for one in workers if one.counts)
        yield from self._end_spares()

    def _end_spares(self) -> Iterator[tuple[int, Any]]:
        """Let spare workers end once nobody trains any more."""
        if self._members is not None and all(self.watch.workers[rank].goodbye for rank in self._members.ranks):
            yield from self.notify({"finish": True})

    def _beside(self, rank: int) -> list[int]:
        """The others that hold the same replica as a worker, and have not ended well."""
        first = rank - rank % self._each
        others = [self.watch.workers[one] for one in range(first, first + self._each) if one != rank]
        return [one.rank for one in others if one.goodbye is None or one.goodbye.outcome not in ENDED_WELL]

    def _follows_another(self, rank: int) -> bool:
        """Whether one that holds the same replica may be the cause of a worker's end, and it will be known soon."""
        return any(not self.watch.workers[one].goodbye for one in self._beside(rank))

    def _who_trains(self, members: GroupMembers) -> dict[str, Any]:
        return {"members": {"ranks": members.ranks, "number": members.number}}

    def _pids_here(self) -> list[int]:
        """Workers on this machine, whoever started them, by rank."""
        host = socket.gethostname()
        return [worker.pid for worker in self.watch.workers.values() if worker.here and worker.host == host]

    def _write(self, rank: int, news: list[dict[str, Any]]) -> None:
        events: list[_Event] = []
        for one in news:
            match one:
                case {"event": str(kind), "step": int(step), "data": dict(data)}:
                    events.append((kind, rank, step, data))
                    if kind == "recovered" and self._members is not None:
                        gone = self.watch.workers.keys() - self._members.ranks
                        self._journal.take_back(gone, step)
                case {"losses": list(losses), "drawn": dict(drawn)}:
                    events += _warnings(self._alike.did(rank, losses, drawn))
                case {"writes": str(path), "place": str(at)}:
                    events += _warnings(self._alike.writes(rank, self.watch.workers[rank].host, path, at))
                case {"metrics": dict(values), "step": int(step)}:
                    self._journal.metrics(step, values)
                case {"note": dict(facts)}:
                    self._journal.note(**facts)
                case {"counts": list(counts)}:
                    self._journal.counts(_counts(rank, counts))
                case {"traffic": list(traffic)}:
                    self._journal.traffic(rank, _traffic(traffic))
                case {"usage": list(usage)}:
                    self._journal.usage(_usage(rank, usage))
                case {"histograms": list(found), "step": int(step)}:
                    self._journal.histograms(_histograms(rank, step, found))
                case {"network": dict(graph)}:
                    self._journal.network(_converted(graph, LayerGraph))
                case {"spans": list(spans)}:
                    self._journal.spans(_spans(rank, spans))
                case _:
                    raise BadMessage(f"rank {rank} says something unknown: {sorted(one)}")
        self._events(events)

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


def _warnings(texts: Iterable[str]) -> Iterator[_Event]:
    return (("warning", None, None, {"text": text}) for text in texts)


def _row(values: list[float | None]) -> StepRow:
    if len(values) != len(STEP_FIELDS):
        raise BadMessage(f"a step has {len(values)} values; expected {len(STEP_FIELDS)}")
    numbers = [math.nan if value is None else value for value in values]
    return StepRow(*numbers)  # type: ignore[arg-type]  # SQLite keeps whole numbers whole


def _spans(rank: int, rows: list[Any]) -> list[Span]:
    found = [Span(rank, *values) for values in _converted(rows, list[tuple[_Whole, str, str, float, float, _Whole]])]
    if not all(math.isfinite(span.start_s + span.end_s) for span in found):  # SQLite would make it NULL
        raise BadMessage(f"rank {rank} says a span that has no beginning or no end")
    return found


def _usage(rank: int, rows: list[Any]) -> list[Usage]:
    found = [Usage(at, rank, name, value) for at, name, value in _converted(rows, list[tuple[float, str, float]])]
    if not all(math.isfinite(one.at + one.value) for one in found):
        raise BadMessage(f"rank {rank} says a usage that is no number")
    return found


def _histograms(rank: int, step: int, rows: list[Any]) -> list[Histogram]:
    kind = list[tuple[str, str, float, float, float, list[_Whole]]]
    found = [
        Histogram(step, kind, name, low, high, magnitude, tuple(counts))
        for kind, name, low, high, magnitude, counts in _converted(rows, kind)
    ]
    if not all(math.isfinite(one.low + one.high + one.magnitude) for one in found):
        raise BadMessage(f"rank {rank} says a histogram without bounds")
    return found


def _traffic(rows: list[Any]) -> list[Traffic]:
    return [Traffic(*row) for row in _converted(rows, list[tuple[str, str, _Whole, _Whole, _Whole]])]


def _counts(rank: int, rows: list[Any]) -> list[CountRow]:
    found = _converted(rows, list[tuple[str, _Server, _Whole, _Whole]])
    return [CountRow(kind, rank, server, value, count) for kind, server, value, count in found]


def _converted(message: Any, kind: type[_Wanted]) -> _Wanted:
    try:
        return msgspec.convert(message, kind)
    except msgspec.ValidationError as error:
        raise BadMessage(str(error)) from None
