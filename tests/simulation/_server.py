"""A simulated server process: the shard's state machine, with tuples of contributions in place of tensors.

The norm of a slice's gradient stands for which slice it is and how many contributions it is the sum of.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from functools import partial

import msgspec

from simulation._history import Value
from simulation._network import Network, Port
from simulation._processes import Process
from volary.server.protocol.from_members import Beat, Kept, PartialNorms, Saved
from volary.server.protocol.header import Header
from volary.server.protocol.hello import ServerHello
from volary.server.protocol.to_members import Clip, Close, End, Gone, Keep, Release, Save, ServerWelcome, ToMember
from volary.server.protocol.updates import Contribution
from volary.server.shards.actions import (
    Action,
    Apply,
    FindNorm,
    Forget,
    Give,
    Hold,
    KeepSlice,
    KeptAll,
    NormsFound,
    ReleaseSlice,
    Respond,
)
from volary.server.shards.shard import Shard

BEAT_S = 0.25
APPLY_S = 0.002  # these are means
SAVE_S = 0.01
VALUE_BYTES = 4  # of each slice


def slice_norm(number: int, contributions: int, scale: float) -> float:
    """The norm of the gradient of slice `number`, the sum of so many."""
    return (1 + number) * contributions * scale


Disk = dict[tuple[int, int], Value]  # what is written for a checkpoint: by step and slice
_FROM_ROSTER = msgspec.msgpack.Decoder(ToMember)


class Server:
    """Server `number`. shards: by slice that it keeps, its shard. values: by slice, once it is welcomed."""

    def __init__(
        self,
        network: Network,
        number: int,
        shards: Mapping[int, int],
        disk: Disk,
        kind: type[Shard] = Shard,
        each: int = 1,
    ) -> None:
        self.process = Process(network.world, f"server {number}")
        self.number, self.outcome = number, ""
        self.values: dict[int, Value] = {}
        self._world, self._network = network.world, network
        self._shards, self._disk, self._kind, self._each = shards, disk, kind, each
        self._roster: Port
        self._shard: Shard
        self._held: dict[tuple[int, Contribution], Value] = {}
        self._kept: dict[tuple[int, int], Value] = {}
        self._busy: set[int] = set()  # slices that change
        self._workers: dict[int, Port] = {}
        self._told = Counter[tuple[int, int]]()
        self.factors: dict[tuple[int, int], float] = {}  # by update and slice, what it was clipped by

    def begin(self, driver: Process) -> Port:
        """Introduce itself; returns the driver's end of the connection."""
        self._roster, other = self._network.connect(self.process, driver)
        self._roster.received = lambda data: self._hear(_FROM_ROSTER.decode(data))
        self._roster.closed = partial(self._end, "the driver has gone")
        self._say(ServerHello(number=self.number, host="host", port=self.number, pid=self.number))
        return other

    @property
    def welcomed(self) -> bool:
        """Whether it has begun to serve."""
        return bool(self.values)

    def accept(self, port: Port, worker: int) -> None:
        """A worker has connected, perhaps again."""
        if self.outcome:
            port.end()
            return
        self._leave(worker)
        self._workers[worker] = port
        port.received = partial(self._arrived, worker)
        port.closed = partial(self._closed, worker, port)

    def _arrived(self, worker: int, message: tuple[Header, Value]) -> None:
        header, payload = message
        wanted = self._shard.wants(worker, header)
        todo = self._shard.arrived(worker, header)
        assert wanted or not any(isinstance(action, Hold) for action in todo), "a payload that was read past is needed"
        self._act(todo, payload)

    def _closed(self, worker: int, port: Port) -> None:
        if self._workers.get(worker) is port:
            self._leave(worker)

    def _leave(self, worker: int) -> None:
        if (port := self._workers.pop(worker, None)) is not None:
            port.end()
            self._act(self._shard.left(worker))

    def _act(self, todo: Iterable[Action], payload: Value = ()) -> None:
        for action in todo:
            match action:
                case Respond(worker, header):
                    self._answer(worker, header)
                case Give(worker, header):
                    self._give(worker, header)
                case Hold(number, contribution):
                    self._held[number, contribution] = payload
                case Forget(number, contribution):
                    del self._held[number, contribution]
                case Apply():
                    self._busy.add(action.slice)
                    self.process.after(self._world.about(APPLY_S), self._apply, action)
                case FindNorm():
                    self.process.after(self._world.about(APPLY_S), self._measure, action)
                case NormsFound(update, norms):
                    self._say(PartialNorms(update, norms))
                case KeepSlice(number, snapshot):
                    assert number not in self._busy, "a slice is kept while it changes"
                    self._kept[number, snapshot] = self.values[number]
                case ReleaseSlice(number, snapshot):
                    del self._kept[number, snapshot]
                case KeptAll(snapshot):
                    self._say(Kept(snapshot))

    def _give(self, worker: int, header: Header) -> None:
        """Now, or when it is their turn: then as they are then."""
        if header.snapshot:
            self._answer(worker, header, self._kept[header.slice, header.snapshot])
        elif self._world.random.random() < 0.2:
            self.process.after(self._world.about(APPLY_S), self._give_newest, worker, header)
        else:
            self._give_newest(worker, header)

    def _give_newest(self, worker: int, header: Header) -> None:
        newest = header._replace(version=self._shard.version(header.slice))
        self._answer(worker, newest, self.values[header.slice])

    def _measure(self, update: FindNorm) -> None:
        found = [self._held[update.slice, contribution] for contribution in update.contributions]
        norm = slice_norm(update.slice, len(found), update.scale)
        self._act(self._shard.measured(update.slice, update.number, norm))

    def _apply(self, update: Apply) -> None:
        self.factors[update.number, update.slice] = update.clip
        for contribution in update.contributions:
            self.values[update.slice] += self._held[update.slice, contribution]
        for contribution in set(update.contributions):
            del self._held[update.slice, contribution]
        self._busy.discard(update.slice)
        self._act(self._shard.applied(update.slice, update.number))

    def _answer(self, worker: int, header: Header, payload: Value = ()) -> None:
        if (port := self._workers.get(worker)) is not None:
            port.send((header, payload))

    def _say(self, message: msgspec.Struct) -> None:
        self._roster.send(msgspec.msgpack.encode(message))

    def _hear(self, message: ToMember) -> None:
        match message:
            case ServerWelcome(restore=step, applied=applied):
                sizes = dict.fromkeys(self._shards, VALUE_BYTES)
                self._shard = self._kind(sizes, applied, None, self._shards, self._each)
                self.values = {number: () if step is None else self._disk[step, number] for number in self._shards}
                self._beat()
            case Close(closing=closing):
                self._act(self._shard.close(closing))
            case Clip(number=number, factor=factor):
                self._act(self._shard.clip(number, factor))
            case Keep(snapshot=snapshot, number=number):
                self._act(self._shard.keep(snapshot, number))
            case Save():
                self.process.after(self._world.about(SAVE_S), self._save, message)
            case Release(snapshot=snapshot):
                self._act(self._shard.release(snapshot))
            case Gone(worker=worker):
                self._act(self._shard.gone(worker))
            case End(outcome=outcome):
                self._end(outcome)

    def _beat(self) -> None:
        if not self.outcome:
            news = self._shard.staleness - self._told
            self._told += news
            applied = self._shard.oldest
            self._say(Beat(applied=applied, staleness=[(*about, often) for about, often in news.items()]))
            self.process.after(BEAT_S, self._beat)

    def _save(self, order: Save) -> None:
        for number, shard in self._shards.items():
            if shard in order.shards:
                self._disk[order.step, number] = self._kept[number, order.snapshot]
        self._say(Saved(snapshot=order.snapshot, files={f"server-{self.number}.pt": "checksum"}))

    def _end(self, outcome: str) -> None:
        self.outcome = outcome
        for port in [self._roster, *self._workers.values()]:
            port.end()
        self._workers.clear()
