"""A roster with obedient members around it: what each was told, and what each does when it is its turn."""

from __future__ import annotations

from collections import Counter, deque
from concurrent.futures import Future
from random import Random
from typing import Any

import msgspec

from volary.comm.control.service import CLOSE
from volary.consistency import ROOM
from volary.server.protocol.from_members import Ask, Beat, Computed, Done, Evaluated, Figures, Kept, Saved
from volary.server.protocol.hello import ServerHello, WorkerHello
from volary.server.protocol.to_members import Close, Dropped, End, EvaluatePiece, Figure, Keep, Learn, Save
from volary.server.protocol.updates import Closing, Contribution, Portion
from volary.server.roster.roster import Roster
from volary.server.roster.settings import RosterSettings

FIRST_SERVER = 1000  # connections of servers are numbered from here on
# consistency models and settings that make them differ; only the first needs every worker
MODELS = [("bsp", {}), ("backup", {}), ("backup", {"epoch": 0.75}), ("ssp", {}), ("ssp", {"staleness": 0})]
MODELS += [("async", {}), ("async", {"push_every": 3}), ("async", {"warm_up_samples": 20})]


class Shelf:
    """Keeps checkpoints: (step, files, state, metric). full: writing fails. given_up: drafts that were removed.

    away: what is asked for while it does not answer; None: it does at once.
    """

    def __init__(self) -> None:
        self.began: list[int] = []
        self.given_up: list[int] = []
        self.committed: list[tuple[int, dict[str, str], dict[str, Any], float | None]] = []
        self.full = False
        self.away: list[Future[None]] | None = None

    def begin(self, step: int) -> Future[None]:
        done: Future[None] = Future()
        if self.full:
            done.set_exception(OSError("no space left on device"))
        else:
            self.began.append(step)
            self._do(done)
        return done

    def give_up(self, step: int) -> None:
        self.given_up.append(step)

    def commit(self, step: int, files: dict[str, str], state: dict[str, Any], metric: float | None) -> Future[None]:
        assert self.began[-1] == step
        self.committed.append((step, files, msgspec.json.decode(msgspec.json.encode(state)), metric))
        done: Future[None] = Future()
        self._do(done)
        return done

    def _do(self, done: Future[None]) -> None:
        if self.away is None:
            done.set_result(None)
        else:
            self.away.append(done)


class Play:
    """One restart attempt of a run. told: what each connection was told; peers of workers are their ranks.

    here: all members that the run begins with come at once. residuals: of workers, belong to checkpoints. unanswered:
    kinds of messages that nobody reacts to.
    """

    def __init__(
        self,
        name: str = "bsp",
        *,
        workers: int = 2,
        servers: int = 1,
        samples: int = 32,
        validation: int = 0,
        restored: tuple[int, dict[str, Any]] | None = None,
        model: dict[str, Any] | None = None,
        shelf: Shelf | None = None,
        here: bool = True,
        residuals: bool = False,
        **terms: Any,
    ) -> None:
        usual: dict[str, Any] = {
            "replicas": 1,
            "give_up_after_s": 10.0,
            "batch_size": 8,
            "steps": lambda per_epoch: per_epoch,
            "evaluate_every": lambda _: None,
            "checkpoint_every": lambda _: None,
        }
        self.events: list[tuple[str, int | None, dict[str, Any]]] = []
        self.told: dict[int, list[Any]] = {}
        self.closings: list[Closing] = []
        self.portions: dict[Contribution, list[Portion]] = {}
        self.tasks: dict[int, deque[Any]] = {}
        self.asked: Counter[int] = Counter()
        self.now = 0.0
        self.gone: set[int] = set()
        self.unanswered: set[type] = set()
        self.shelf = shelf or Shelf()
        self.value = iter(range(1000))
        self._hello, self._residuals = (samples, validation), residuals
        self.roster = Roster(
            RosterSettings(workers=workers, servers=servers, **(usual | terms)),
            ROOM.load(name)(**(model or {})),
            self.shelf,
            lambda kind, rank, data: self.events.append((kind, rank, data)),
            restored,
        )
        for number in range(servers if here else 0):
            self.serve(number)
        for rank in range(workers if here else 0):
            self.join(rank)

    # Coming and going

    def join(self, rank: int, peer: int | None = None) -> None:
        samples, validation = self._hello
        hello = WorkerHello(rank, {}, samples, validation, "accuracy", True, self._residuals)
        self.tasks[rank] = deque()
        self.deliver(self.roster.opened(rank if peer is None else peer, plain(hello), self.now))

    def serve(self, number: int) -> None:
        hello = ServerHello(number, "127.0.0.1", 5000 + number, 1)
        self.deliver(self.roster.opened(FIRST_SERVER + number, plain(hello), self.now))

    def cut_off(self, peer: int) -> None:
        """A connection breaks."""
        if peer not in self.gone:
            self.gone.add(peer)
            self.deliver(self.roster.closed(peer, self.now))

    def say(self, peer: int, message: Any) -> None:
        if peer not in self.gone:
            self.deliver(self.roster.received(peer, plain(message), self.now))

    def tick(self, seconds: float = 0.1) -> None:
        """Time passes; servers beat, unless they are gone."""
        self.now += seconds
        for peer in self.servers:
            self.say(peer, Beat(0))
        self.deliver(self.roster.tick(self.now))

    @property
    def servers(self) -> list[int]:
        return [peer for peer in self.told if peer >= FIRST_SERVER and peer not in self.gone]

    @property
    def workers(self) -> list[int]:
        return [peer for peer in self.told if peer < FIRST_SERVER and peer not in self.gone]

    def deliver(self, replies: Any) -> None:
        for peer, message in replies:
            if peer in self.gone:
                continue
            if message is CLOSE:
                self.cut_off(peer)
                continue
            self.told.setdefault(peer, []).append(message)
            if type(message) in self.unanswered:
                continue
            if peer < FIRST_SERVER:
                self._hear_as_worker(peer, message)
            else:
                self._hear_as_server(peer, message)

    # What members do at once

    def _hear_as_worker(self, rank: int, message: Any) -> None:
        match message:
            case Learn():
                self.portions[Contribution(rank, message.clock)] = message.portions
                self.tasks[rank].append(message)
                self.asked[rank] -= 1
            case EvaluatePiece() | Figure():
                self.tasks[rank].append(message)
                self.asked[rank] -= 1
            case Save(snapshot, _, shards):
                assert shards == []
                self.say(rank, Saved(snapshot, {f"rank-{rank}": "checksum"}))
            case End():
                self.cut_off(rank)

    def _hear_as_server(self, peer: int, message: Any) -> None:
        match message:
            case Close(closing):
                if not self.closings or closing.number > self.closings[-1].number:
                    self.closings.append(closing)
            case Keep(snapshot):
                self.say(peer, Kept(snapshot))
            case Save(snapshot, _, shards):
                self.say(peer, Saved(snapshot, {f"shard-{shard}": "checksum" for shard in shards}))
            case End():
                self.cut_off(peer)

    # What they do when it is their turn

    def ask(self, rank: int) -> None:
        if not self.asked[rank]:
            self.asked[rank] += 1
            self.say(rank, Ask())

    def turn(self, rank: int) -> bool:
        """Do the oldest task; False if there was none."""
        if not self.tasks[rank] or rank in self.gone:
            return False
        match self.tasks[rank].popleft():
            case Learn(clock, portions):
                if any(portion.end > portion.start for portion in portions):
                    self.say(rank, Computed(clock, 1.0, True))
                self.say(rank, Done(clock, 3))
            case EvaluatePiece(snapshot, piece, start, end):
                self.say(rank, Evaluated(snapshot, piece, [float(end - start)]))
            case Figure(snapshot, totals, samples):
                assert totals == [samples]
                value = float(next(self.value))
                self.say(rank, Figures(snapshot, {"accuracy": value}, value))
        return True

    def to_the_end(self, random: Random | None = None, at_most: int = 5000) -> None:
        """Everybody asks and works, in turn or at random, until the run is over."""
        for count in range(at_most):
            if self.roster.outcome or self.roster.failure:
                return
            workers = self.workers
            rank = random.choice(workers) if random else workers[count % len(workers)]
            self.ask(rank)
            self.turn(rank)
        raise AssertionError(f"not over after {at_most} turns")

    # What came of it

    def learnt(self) -> Counter[tuple[int, int]]:
        """How often each (epoch, sample) is in an update."""
        seen: Counter[tuple[int, int]] = Counter()
        for closing in self.closings:
            for one in closing.contributions:
                for portion in self.portions[one]:
                    seen.update((portion.epoch, sample) for sample in range(portion.start, portion.end))
        return seen

    def heard(self, peer: int, kind: type) -> list[Any]:
        return [message for message in self.told.get(peer, []) if isinstance(message, kind)]

    def dropped(self) -> set[Contribution]:
        return {Contribution(rank, said.clock) for rank in self.told for said in self.heard(rank, Dropped)}

    def said(self, kind: str) -> list[tuple[int | None, dict[str, Any]]]:
        return [(rank, data) for said, rank, data in self.events if said == kind]


def every(samples: int, epochs: int) -> Counter[tuple[int, int]]:
    """The samples of a run in which all goes well: each (epoch, sample) once."""
    return Counter((epoch, sample) for epoch in range(epochs) for sample in range(samples))


def plain(message: Any) -> Any:
    """As it comes from a connection."""
    return msgspec.msgpack.decode(msgspec.msgpack.encode(message))
