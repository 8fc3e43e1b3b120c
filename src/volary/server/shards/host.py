"""A server at work: what arrives over its channels goes to the shard, and what the shard decides is done.

Each connection has a thread that receives, and applies what its contributions complete, while they are in the cache;
and one that sends. What the roster closes is applied by a thread of its own.
"""

from __future__ import annotations

import heapq
import threading
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from volary.comm.control.errors import BadFrame, ConnectionLost
from volary.server.protocol.from_members import Beat, Kept, PartialNorms, Products
from volary.server.protocol.header import AVERAGED, NEWEST, Header, MessageKind
from volary.server.shards.actions import (
    Action,
    Apply,
    Forget,
    Give,
    Hold,
    KeepSlice,
    KeptAll,
    Measurement,
    NormsFound,
    ProductsFound,
    ReleaseSlice,
    Respond,
    SetValues,
)
from volary.server.shards.buffer_pool import Offer, PooledBuffer
from volary.server.shards.differences import Differences
from volary.server.shards.outbox import Outbox
from volary.server.shards.shard import Shard
from volary.server.shards.slice_store import PendingContribution, SliceStore

if TYPE_CHECKING:
    from volary.codec._base import FrameCodec
    from volary.comm.channels.channel import Channel, Message, Payload
    from volary.server.shards.slice_store import Reading

JOIN_S = 5.0
Step = Callable[[], list[Action]]


class Host:
    """Serves workers from a shard and the tensors of its slices.

    pulls: codec of what changed since a worker's last pull; None: values travel as they are. report: takes what the
    roster is to know; with the shard's lock held. most_bytes: of a message, where not all slices are there yet.
    """

    def __init__(
        self,
        shard: Shard,
        slice_store: SliceStore,
        *,
        pulls: FrameCodec | None = None,
        report: Callable[[Kept | PartialNorms | Products], None] = lambda message: None,
        most_bytes: int | None = None,
    ) -> None:
        self.shard, self.slice_store = shard, slice_store
        self._pulls, self._report = pulls, report
        self._most_bytes = most_bytes or slice_store.forms.most_bytes
        self._lock = threading.Lock()  # of the shard, and of the order in which its decisions are carried out
        self._connections: dict[int, _Connection] = {}
        self._stirring: set[Outbox] = set()  # that have something to send
        self._due: list[tuple[int, Apply | Measurement]] = []
        self._changed, self._closed = threading.Condition(), False
        self._failed: BaseException | None = None
        self._applier = threading.Thread(target=self._run, name="server-applier", daemon=True)
        self._applier.start()

    def accepted(self, channel: Channel) -> None:
        """Serve the worker at the other end, until the connection ends: what a listener calls in a thread."""
        worker = channel.peer.get("worker")
        if not isinstance(worker, int) or self._closed:
            channel.close()
            return
        differences = Differences(self._pulls, self.slice_store.pool) if self._pulls is not None else None
        connection = _Connection(self, worker, channel, Outbox(channel, self.slice_store, differences, self._fail))
        try:
            self._enter(connection)
            connection.receive()
        except (ConnectionLost, BadFrame) as problem:
            if isinstance(problem, BadFrame):
                self.decide(lambda: self._refused(worker))
        except BaseException as error:  # a user's rule may raise anything
            self._fail(error)
        finally:
            channel.close()
            connection.outbox.close()
            self._leave(connection)

    def decide(self, step: Step, offer: Offer | None = None, header: Header | None = None) -> list[Apply | Measurement]:
        """Let the shard take a step and carry out what it decides, but for the updates that are due: they are returned.

        offer: what came behind `header`. Answers before an update are sent with what comes of it.
        """
        with self._lock:
            due = list[Apply | Measurement]()
            for action in step():
                if isinstance(action, Apply | Measurement):
                    due.append(action)
                else:
                    self._carry_out(action, offer, header)
            if not due:
                while self._stirring:
                    self._stirring.pop().stir()
            return due

    def wants(self, worker: int, header: Header) -> bool:
        """Whether the payload behind a header may be of use. Raises BadFrame if it is larger than any."""
        if header.length > self._most_bytes:
            raise BadFrame(f"a payload of {header.length} bytes; accepted: up to {self._most_bytes}")
        with self._lock:
            return self.shard.wants(worker, header) and not self._problem(header)

    def arrived(self, worker: int, header: Header) -> list[Action]:
        """Let the shard decide on a message that has arrived; refuse it if its header cannot be right."""
        if not (problem := self._problem(header)):
            return self.shard.arrived(worker, header)
        self.shard.refused[worker] += 1
        answer = header._replace(kind=MessageKind.REFUSED, version=header.kind, length=len(problem.encode()))
        return [Respond(worker, answer, problem)]

    def order(self, step: Step) -> None:
        """Let the shard take a step; what becomes due is applied by a thread that does nothing else."""
        due = self.decide(step)
        with self._changed:
            for one in due:
                heapq.heappush(self._due, (-one.slice, one))  # forward uses the last slices first
            self._changed.notify()

    def apply(self, due: list[Apply | Measurement]) -> None:
        """Apply and measure what is due, and what becomes due by that."""
        while due:
            one = due.pop(0)
            if isinstance(one, Apply):
                self.slice_store.apply(one)
                due += self.decide(partial(self.shard.applied, one.slice, one.number))
            else:
                found = self.slice_store.measure(one)
                due += self.decide(partial(self.shard.measured, one.slice, one.number, found))

    def beat(self) -> Beat:
        """How far all slices are, and what has happened since the last one."""
        with self._lock:
            shard = self.shard
            beat = Beat(
                shard.oldest,
                [(worker, behind, times) for (worker, behind), times in shard.staleness.items()],
                list(shard.late.items()),
                {f"worker {worker}": times for worker, times in shard.refused.items()},
            )
            for counted in (shard.staleness, shard.late, shard.refused):
                counted.clear()
            return beat

    def check(self) -> None:
        """Raise what a thread of the host has failed by."""
        if self._failed is not None:
            raise self._failed

    def close(self) -> None:
        """End all connections and threads of this server."""
        with self._changed:
            self._closed = True
            self._changed.notify()
        with self._lock:
            connections = list(self._connections.values())
        for connection in connections:
            connection.channel.close()
        for connection in connections:
            connection.ended.wait(JOIN_S)
        self._applier.join(JOIN_S)

    def _run(self) -> None:
        try:
            while True:
                with self._changed:
                    self._changed.wait_for(lambda: self._closed or self._due)
                    if self._closed:
                        return
                    _, one = heapq.heappop(self._due)
                self.apply([one])
        except BaseException as error:  # a user's rule may raise anything
            self._fail(error)

    def _fail(self, error: BaseException) -> None:
        self._failed = self._failed or error
        with self._lock:
            for connection in self._connections.values():
                connection.channel.close()

    def _enter(self, connection: _Connection) -> None:
        """Take the worker's place, once whoever has it has left. Raises ConnectionLost if it does not leave."""
        while True:
            with self._lock:
                before = self._connections.setdefault(connection.worker, connection)
                if before is connection:
                    if self._closed or self._failed is not None:
                        connection.channel.close()
                    return
            before.channel.close()
            if not before.ended.wait(JOIN_S):
                raise ConnectionLost(f"an older connection of worker {connection.worker} did not end in {JOIN_S:g} s")

    def _leave(self, connection: _Connection) -> None:
        def leave() -> list[Action]:
            if self._connections.get(connection.worker) is not connection:
                return []
            del self._connections[connection.worker]
            return self.shard.left(connection.worker)

        self.decide(leave)
        connection.ended.set()

    def _problem(self, header: Header) -> str:
        """Why what follows cannot be a contribution, or a slice's first values."""
        if header.kind not in (MessageKind.PUSH, MessageKind.SET):
            return ""
        if header.slice not in self.slice_store.forms.shapes:
            return f"slice {header.slice} is not kept here"
        return self.slice_store.forms.why_not(header.slice, header.form, header.length)

    def _refused(self, worker: int) -> list[Action]:
        self.shard.refused[worker] += 1
        return []

    def _carry_out(self, action: Action, offer: Offer | None, header: Header | None) -> None:
        """Do what an action says."""
        slice_store = self.slice_store
        match action:
            case Respond(peer, answer, sentence):
                if connection := self._connections.get(peer):
                    connection.outbox.answer(answer, sentence)
                    self._stirring.add(connection.outbox)
            case Give(peer, answer):
                if connection := self._connections.get(peer):
                    connection.outbox.give(answer, self._aside(answer))
                    self._stirring.add(connection.outbox)
            case Hold(number, contribution):
                assert offer is not None and header is not None
                offer.kept = True
                slice_store.hold(number, contribution, PendingContribution(header.form, header.used, offer))
            case Forget(number, contribution):
                slice_store.forget(number, contribution)
            case SetValues(number):
                assert offer is not None
                offer.kept = True
                slice_store.store(number, offer)
            case KeepSlice(number, snapshot):
                slice_store.keep(number, snapshot)
            case ReleaseSlice(number, snapshot):
                slice_store.release(number, snapshot)
            case KeptAll(snapshot):
                self._report(Kept(snapshot))
            case NormsFound(number, norms):
                self._report(PartialNorms(number, norms))
            case ProductsFound(number, found):
                self._report(Products(number, found))

    def _aside(self, answer: Header) -> Reading | None:
        """The reading of values that are asked for beside those that the worker computes with; None: there are none."""
        if answer.snapshot == AVERAGED:
            return self.slice_store.read_averaged(answer.slice)
        if answer.snapshot == NEWEST:
            return self.slice_store.read(answer.slice)
        return self.slice_store.read_evaluated(answer.slice, answer.snapshot) if answer.snapshot else None


class _Connection:
    """One worker's connection: what it sends is received and acted on here."""

    def __init__(self, host: Host, worker: int, channel: Channel, outbox: Outbox) -> None:
        self.worker, self.channel, self.outbox = worker, channel, outbox
        self.ended = threading.Event()
        self._host, self._slice_store = host, host.slice_store
        self._room: PooledBuffer | None = None

    def receive(self) -> None:
        """Receive until the connection ends. Raises ConnectionLost, BadFrame."""
        while True:
            self._take(self.channel.receive(self._place))

    def _place(self, packed: bytes) -> Payload | None:
        """Memory for what follows; None if nobody wants it."""
        header = Header.unpack(packed)
        self._room = None
        if not header.length or not self._host.wants(self.worker, header):
            return None
        self._room = self._slice_store.pool.take(header.length)
        return self._room.payload

    def _take(self, message: Message) -> None:
        header = Header.unpack(message.header)
        room, self._room = self._room, None
        offer = Offer(self._slice_store.pool, room, message) if message.payload is not None else None
        due = self._host.decide(lambda: self._host.arrived(self.worker, header), offer, header)
        if offer is not None and not offer.kept:
            offer.drop()
        self._host.apply(due)
        if offer is not None:
            offer.settle()
