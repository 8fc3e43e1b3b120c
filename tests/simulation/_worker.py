"""A simulated worker: the smallest training loop over the client's state machine and its connections."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias

import msgspec

from simulation._history import History, Read, Value, Wait
from simulation._network import Network, Port
from simulation._processes import Process
from simulation._server import BEAT_S, SAVE_S, VALUE_BYTES, Server
from simulation._together import Together
from volary.driver.watching.worker_status import WorkerBeat
from volary.run.verdict import Verdict
from volary.server.client.client import Action, Client, HeldAll, Installed, RequestRefused, SendToServer
from volary.server.protocol.from_members import Ask, Computed, Done, Evaluated, Figures, Leave, Unreachable
from volary.server.protocol.header import Form, Header, MessageKind
from volary.server.protocol.hello import WorkerHello
from volary.server.protocol.norms import ClipNorm
from volary.server.protocol.slices import Slice
from volary.server.protocol.to_members import (
    LEFT,
    Clipped,
    End,
    EvaluatePiece,
    Figure,
    Keep,
    Learn,
    Release,
    Save,
    ToMember,
    View,
    Welcome,
)
from volary.server.protocol.updates import Contribution
from volary.train.served.residuals import Residuals

AGAIN_S = 0.1  # between two attempts to connect
GIVE_UP_S = 5.0  # of attempts, after which the roster is told
ALL_USED = 2**64 - 1
_FROM_ROSTER = msgspec.msgpack.Decoder(ToMember)

Task: TypeAlias = Learn | EvaluatePiece | Figure
FOR_ALL = (Ask, Computed, Evaluated, Figures)  # what the first rank of a replica says for all who hold it


@dataclass(frozen=True)
class Habits:
    """Settings that workers of one run share. fetch_every: steps. asks_ahead: when backward begins, too.

    hello: but for the rank. compute_s: the mean of forward, and of backward. clip: as own loops say with each step.
    """

    slices: Sequence[Slice]
    hello: WorkerHello
    fetch_every: int = 1
    asks_ahead: bool = False
    compute_s: float = 0.01
    share_not_finite: float = 0.0
    clip: ClipNorm | None = None
    client: type[Client] = Client
    residuals: type[Residuals] = Residuals


class Worker:
    """One worker of a run, `slow` times slower than others. servers: all that there are, by number.

    together: its replica's ranks, of which each exchanges slices of its own.
    """

    def __init__(
        self,
        network: Network,
        rank: int,
        habits: Habits,
        servers: dict[int, Server],
        history: History,
        together: Together,
    ):
        self.process = Process(network.world, f"worker {rank}")
        self.replica, place = divmod(rank, together.each)
        self._together, self._leads = together, place == 0
        self._slices = [one for one in habits.slices if one.number % together.each == place]
        self.rank, self.outcome, self.slow = rank, "", 1.0
        self.begun = False
        self.standing: Callable[[], tuple[int, int]]
        self._network, self._habits, self._servers, self._history = network, habits, servers, history
        self._world = network.world
        self._roster: Port
        self._pulse: Port
        self._client: Client
        self._view = View(number=-1, shards=[], addresses={})
        self.ports: dict[int, Port] = {}
        self._tasks: list[Task] = []
        self._busy = self._leaving = self._measuring = False
        self._waits_for = -1  # the clock at which a wait has been told
        self._came: dict[int, tuple[int, Value]] = {}  # by slice, what is to be used next
        self._used: dict[int, tuple[int, Value]] = {}  # by slice, what is used
        self._memory: Value = ()  # of the contribution that is sent
        self._pushed = -1  # its clock
        self._ready: Learn | None = None  # whose contribution waits for that memory
        self._snapshot: dict[int, Value] = {}
        self._fetched_at = 0
        self._residuals = habits.residuals(self, self._write, self._say, self._start, kept=habits.hello.residuals)
        self._steps = 0

    def begin(self, driver: Process) -> Port:
        """Introduce itself; returns the driver's end of the connection."""
        self.begun = True
        self._roster, other = self._network.connect(self.process, driver)
        self._roster.received = lambda data: self._hear(_FROM_ROSTER.decode(data))
        self._roster.closed = partial(self._end, "the driver has gone")
        self._say(msgspec.structs.replace(self._habits.hello, rank=self.rank))
        return other

    def beat(self, driver: Process) -> Port:
        """Introduce itself to the watch, and beat from now on; returns the driver's end of the connection."""
        self._pulse, other = self._network.connect(self.process, driver)
        self._pulse.received, self._pulse.closed = self._hear_watch, lambda: None
        self._pulse.send(msgspec.msgpack.encode({"rank": self.rank, "pid": 1 + self.rank, "host": "host"}))
        self._beat()
        return other

    def _beat(self) -> None:
        if not self.outcome:
            self._send_beat()
            self.process.after(BEAT_S, self._beat)

    def _send_beat(self, bye: Verdict | None = None) -> None:
        phase = ("forward" if self._busy else "idle") if self._view.shards else "starting"
        beat = WorkerBeat(step=self._steps, phase=phase, progress=self._steps, bye=bye)
        self._pulse.send(msgspec.msgpack.encode(beat))

    def _hear_watch(self, data: bytes) -> None:
        if reason := msgspec.msgpack.decode(data).get("end"):
            self._end(reason)

    def leave(self) -> None:
        """Go, of its own will."""
        if self.begun and not self._leaving and not self.outcome:
            self._leaving = True
            self._say(Leave())

    # What the roster says

    def _hear(self, message: ToMember) -> None:
        match message:
            case Welcome():
                self._client = self._habits.client(self._slices, self.rank)
                self._pull(0)
                self._say(Ask())
            case View():
                self._look(message)
            case Keep(snapshot=snapshot, number=clock):
                self._residuals.keep(snapshot, clock)
            case Save(snapshot=snapshot, step=step):
                self._residuals.save(snapshot, step)
            case Release(snapshot=snapshot):
                self._residuals.release(snapshot)
            case Clipped(clock=clock, norm=norm):
                self._history.norms[Contribution(self.replica, clock)] = norm
            case Learn() | EvaluatePiece() | Figure():
                if isinstance(message, Learn):
                    self._residuals.settle(message.settled)
                self._tasks.append(message)
                self._go_on()
            case End(outcome=outcome):
                self._end(outcome)

    def state(self) -> dict[str, Any]:
        """All that it has encoded, as its residuals would show."""
        return {"encoded": self._history.encoded.get(self.rank, ())}

    def _write(self, step: int, state: dict[str, Any], first: bool = False) -> dict[str, str]:
        self._history.residuals[step, self.rank] = state["encoded"]
        return {f"rank-{self.rank}.pt": "checksum"}

    def _start(self, work: Callable[[], None]) -> None:
        self.process.after(self._world.about(SAVE_S), work)

    def _go_on(self) -> None:
        """Begin with the next task, if it can begin."""
        if self._busy or not self._tasks or self.outcome:
            return
        match self._tasks[0]:
            case Learn() as learn:
                if self._may_begin(learn.clock, learn.oldest):
                    self._tasks.pop(0)
                    self._begin(learn)
            case EvaluatePiece(snapshot=snapshot):
                self._busy = True
                self._snapshot = {}
                for one in self._slices:
                    self._do(self._client.pull(one.number, 0, snapshot))
            case Figure(snapshot=snapshot, totals=totals, samples=samples):
                self._tasks.pop(0)
                assert totals == [samples], "a piece of an evaluation is counted twice, or not"
                self._say(Figures(snapshot=snapshot, figures={"loss": 1.0}, value=1.0))
                self._say(Ask())
                self._go_on()

    # Learning

    def _may_begin(self, clock: int, oldest: int) -> bool:
        if all(self._client.version(one.number) >= oldest for one in self._slices):
            return True
        if self._waits_for < clock:
            self._waits_for = clock
            self._pull(oldest)
            self._history.waits.append(Wait(self.replica, clock, oldest, *self.standing()))
        return False

    def _begin(self, learn: Learn) -> None:
        self._used.update(self._came)
        self._came.clear()
        self._history.reads.append(Read(self.replica, learn.clock, dict(self._used)))
        self._say(Ask())
        if not any(portion.end > portion.start for portion in learn.portions):
            self._say(Done(clock=learn.clock))
            self._finish(learn)
            return
        self._busy = True
        self._together.meet(("learn", learn.clock), self.rank, partial(self.process.do, self._forward, learn))

    def _forward(self, learn: Learn) -> None:
        self.process.after(self._compute_s(), self._forward_is_over, learn)

    def _forward_is_over(self, learn: Learn) -> None:
        finite = self._world.random.random() >= self._habits.share_not_finite
        if not finite:
            self._history.not_finite.add(Contribution(self.replica, learn.clock))
        self._say(Computed(clock=learn.clock, loss=1.0, finite=finite, waits=self._habits.clip is not None))
        if self._habits.asks_ahead:
            self._pull(0)
        self.process.after(self._compute_s(), self._backward_is_over, learn)

    def _backward_is_over(self, learn: Learn) -> None:
        """The memory of the last contribution has to be free for this one."""
        self._ready = learn
        if self._pushed < 0:
            self._push()

    def _push(self) -> None:
        learn, self._ready = self._ready, None
        assert learn is not None
        self._pushed = learn.clock
        self._memory = (Contribution(self.replica, learn.clock),)
        self._residuals.begin(learn.clock)
        self._history.encoded[self.rank] = self._history.encoded.get(self.rank, ()) + self._memory
        for one in self._world.random.sample(self._slices, len(self._slices)):
            version = self._used[one.number][0]
            self._do(self._client.push(one.number, learn.clock, version, ALL_USED, Form.EXACT, VALUE_BYTES))
        self._busy = False
        self._finish(learn)

    def _finish(self, learn: Learn) -> None:
        self._steps += 1
        if self._steps % self._habits.fetch_every == 0:
            ahead = (task.oldest for task in self._tasks if isinstance(task, Learn))
            self._pull(next(ahead, 0))  # a rank that follows others may be several behind
        self._go_on()

    def _pull(self, at_least: int) -> None:
        for one in self._slices:
            self._do(self._client.pull(one.number, at_least))

    def _compute_s(self) -> float:
        return self.slow * self._world.about(self._habits.compute_s)

    # Servers

    def _look(self, view: View) -> None:
        self._view = view
        self._do(self._client.view(view))
        for number in [number for number in self.ports if number not in view.addresses]:
            self.ports[number].end()
            self._lost(number)
        for number in view.addresses:
            if number not in self.ports:
                self._connect(number, self._world.now)

    def _connect(self, number: int, since_s: float) -> None:
        """Have a connection, now or later, for as long as the server is in the view."""
        if self.outcome or number in self.ports or number not in self._view.addresses:
            return
        server = self._servers[number]
        if not server.welcomed or not self._network.reaches(self.process, server.process):
            if since_s <= self._world.now - GIVE_UP_S:
                self._say(Unreachable(server=number))
                since_s = self._world.now
            self.process.after(AGAIN_S, self._connect, number, since_s)
            return
        self.ports[number], other = self._network.connect(self.process, server.process)
        self.ports[number].received = partial(self._received, number)
        self.ports[number].closed = partial(self._lost, number)
        server.accept(other, self.rank)
        self._do(self._client.connected(number))

    def _lost(self, number: int) -> None:
        if self.ports.pop(number, None) is not None:
            self._do(self._client.lost(number))
            self._connect_soon(number)

    def _connect_soon(self, number: int) -> None:
        self.process.after(AGAIN_S, self._connect, number, self._world.now)

    def _received(self, number: int, message: tuple[Header, Value]) -> None:
        header, payload = message
        assert header.kind != MessageKind.REFUSED or header.snapshot, "what makes sense was refused"
        if self._client.awaits(number, header):
            if header.snapshot:
                self._snapshot[header.slice] = payload
            else:
                self._came[header.slice] = (header.version, payload)
        self._do(self._client.received(number, header))
        self._go_on()

    def _do(self, actions: Iterable[Action]) -> None:
        for action in actions:
            match action:
                case SendToServer(number, header):
                    self._send(self.ports.get(number), header)
                case HeldAll(clock):
                    self._held(clock)
                case Installed(snapshot=snapshot) if snapshot and len(self._snapshot) == len(self._slices):
                    self._evaluate()
                case RequestRefused():
                    self._evaluate()

    def _send(self, port: Port | None, header: Header) -> None:
        """Now, or a little later: what is more urgent may go first."""
        if port is None:
            return
        if self._world.random.random() < 0.2:
            self.process.after(self._world.about(self._network.delay_s), self._put, port, header)
        else:
            self._put(port, header)

    def _put(self, port: Port, header: Header) -> None:
        port.send((header, self._memory if header.kind == MessageKind.PUSH else ()))

    def _held(self, clock: int) -> None:
        assert clock == self._pushed
        self._pushed = -1
        held = partial(self._history.acknowledged.add, Contribution(self.replica, clock))
        self._together.meet(("held", clock), self.rank, held)
        self._residuals.held(clock)
        self._say(Done(clock=clock, clip=self._habits.clip))
        if self._ready is not None:
            self._push()

    def _evaluate(self) -> None:
        """All of a snapshot is here, or it is not kept any more."""
        task = self._tasks[0] if self._busy and self._tasks else None
        if not isinstance(task, EvaluatePiece) or self._measuring:
            return
        self._measuring = True
        piece = "piece", task.snapshot, task.piece
        self._together.meet(piece, self.rank, partial(self.process.do, self._evaluated, task))

    def _evaluated(self, task: EvaluatePiece) -> None:
        self._measuring = False
        self._tasks.pop(0)
        self._busy = False
        if len(self._snapshot) == len(self._slices):
            self._history.snapshots.setdefault(task.snapshot, set()).update(self._snapshot.items())
            self._say(Evaluated(snapshot=task.snapshot, piece=task.piece, totals=[task.end - task.start]))
        self._say(Ask())
        self._go_on()

    def _say(self, message: msgspec.Struct) -> None:
        if not self._leads and isinstance(message, FOR_ALL):
            return
        self._roster.send(msgspec.msgpack.encode(message))

    def _end(self, outcome: str) -> None:
        if self.outcome:
            return
        self.outcome = outcome
        ended = outcome if outcome in ("finished", "stopped", LEFT) else LEFT if self._leaving else "peer_lost"
        self._send_beat(Verdict(rank=self.rank, outcome=ended, step=self._steps, host="host"))
        for port in [self._roster, self._pulse, *self.ports.values()]:
            port.end()
        self.ports.clear()
