"""The register of a store: members, keys, and the places of their slices. A plain state machine on the keyed server."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from itertools import count
from typing import Any, assert_never

from volary.comm.control.errors import BadMessage
from volary.comm.control.service import CLOSE, Replies
from volary.server.protocol.slices import cut
from volary.sharding.ranges import Range
from volary.store.kinds import TensorKind, unknown, why_not_again, why_not_kept
from volary.store.messages import (
    Added,
    AddSlices,
    Declare,
    Drop,
    Failed,
    Filled,
    Find,
    FromServer,
    FromWorker,
    Goodbye,
    Known,
    Left,
    Lost,
    Ready,
    Refused,
    StoredSlice,
    StoreServerHello,
    StoreWelcome,
    StoreWorkerHello,
    decoded,
)
from volary.store.protocol import Key
from volary.store.settings import Settings

CUT_BYTES = 2**18  # a tensor with fewer is kept by one server: more messages would cost more than they save
BLOCK_VALUES = 64  # tensors are cut at multiples
MOST_KEYS = 2**17
SENT = list[tuple[int, Any]]


@dataclass
class _Entry:
    """A key. missing: servers that have not agreed to keep it. setter: who sends its first values.

    declared, finding: peers that wait until it is filled; the former could fill it.
    """

    key: Key
    kind: TensorKind
    serial: int = -1
    cuts: list[StoredSlice] = field(default_factory=list)
    missing: set[int] = field(default_factory=set)
    setter: int | None = None
    filled: bool = False
    declared: list[int] = field(default_factory=list)
    finding: list[int] = field(default_factory=list)


class Register:
    """A `volary.comm.control.service.Service`. changed: called when a server is ready, or lost; see `ready` and `lost`.

    A key whose first values stop half way, because their worker has gone, is placed anew for the next who has some.
    """

    def __init__(self, settings: Settings, changed: Callable[[], None]) -> None:
        self.lost: dict[int, Failed] = {}
        self._settings, self._changed = settings, changed
        self._servers: dict[int, int] = {}  # number to peer
        self._ports: dict[int, int] = {}
        self._workers: dict[int, int] = {}  # peer to worker
        self._admissions: dict[int, int] = {}  # how often a worker was admitted
        self._goodbyes: dict[int, dict[int, int]] = {}
        self._left: list[Left] = []
        self._entries: dict[Key, _Entry] = {}
        self._serials: dict[int, _Entry] = {}  # those that are not filled
        self._loads = [0] * settings.servers
        self._next_serial, self._next_slice = count(), count()

    @property
    def ready(self) -> bool:
        """Whether all servers of the store have sent the port that they listen on."""
        return len(self._ports) == self._settings.servers

    def opened(self, peer: int, hello: dict[str, Any], now: float) -> Replies:
        match decoded(hello, StoreWorkerHello | StoreServerHello):
            case StoreWorkerHello(worker):
                return self._admit(peer, worker)
            case StoreServerHello(number):
                if number in self._servers or not 0 <= number < self._settings.servers:
                    raise BadMessage(f"server {number} is here already, or was never started")
                self._servers[number] = peer
        return ()

    def received(self, peer: int, message: Any, now: float) -> Replies:
        if peer in self._workers:
            return self._from_worker(peer, decoded(message, FromWorker))
        for number, server in self._servers.items():
            if server == peer:
                return self._from_server(number, decoded(message, FromServer))
        return ()

    def closed(self, peer: int, now: float) -> Replies:
        if peer in self._workers:
            return self._worker_left(peer, self._workers.pop(peer))
        for number, server in list(self._servers.items()):
            if server == peer:
                return self._server_lost(number, Failed("", bad_input=False))
        return ()

    def tick(self, now: float) -> Replies:
        return ()

    def _admit(self, peer: int, worker: int) -> Replies:
        settings = self._settings
        if why := self._why_not(worker):
            return [(peer, Refused(None, why)), (peer, CLOSE)]
        number = worker + settings.workers * self._admissions.get(worker, 0)
        self._admissions[worker] = self._admissions.get(worker, 0) + 1
        self._workers[peer] = worker
        ports = [self._ports[one] for one in range(settings.servers)]
        welcome = StoreWelcome(number, ports, settings.mode, settings.workers, settings.security)
        return [(peer, message) for message in (welcome, *self._left)]

    def _why_not(self, worker: int) -> str:
        most = self._settings.workers - 1
        if not 0 <= worker <= most:
            return f"worker is {worker}; accepted: 0 to {most}, as the store was made"
        if worker in self._workers.values():
            return f"worker {worker} is here already; accepted: each number once"
        if self._settings.mode == "sync" and worker in self._admissions:
            return f"worker {worker} has left; a store in sync mode takes nobody back, as each update needs all workers"
        if self.lost:
            return has_ended(*next(iter(self.lost.items())))
        return "" if self.ready else "the store's servers have not started yet"

    def _from_worker(self, peer: int, message: FromWorker) -> SENT:
        match message:
            case Declare(key, kind):
                return self._declare(peer, key, kind)
            case Find(key):
                return self._find(peer, key)
            case Filled(key):
                return self._filled(peer, key)
            case Goodbye(pushes):
                self._goodbyes[peer] = pushes
                return [(peer, CLOSE)]
            case _:
                assert_never(message)

    def _from_server(self, number: int, message: FromServer) -> SENT:
        match message:
            case Ready(port):
                self._ports[number] = port
                self._changed()
                return []
            case Added(serial, why):
                return self._added(number, serial, why)
            case Failed():
                return self._server_lost(number, message)
            case _:
                assert_never(message)

    # Keys

    def _declare(self, peer: int, key: Key, kind: TensorKind) -> SENT:
        entry = self._entries.get(key)
        if entry is None:
            if why := why_not_kept(key, kind) or self._why_full(key):
                return [(peer, Refused(key, why))]
            entry = self._entries[key] = _Entry(key, kind, declared=[peer])
            return self._place(entry)
        if why := why_not_again(key, entry.kind, kind):
            return [(peer, Refused(key, why))]
        if entry.filled:
            return [(peer, _known(entry))]
        entry.declared.append(peer)
        return []

    def _find(self, peer: int, key: Key) -> SENT:
        entry = self._entries.get(key)
        if entry is None:
            return [(peer, Refused(key, unknown(key)))]
        if entry.filled:
            return [(peer, _known(entry))]
        entry.finding.append(peer)
        return []

    def _filled(self, peer: int, key: Key) -> SENT:
        entry = self._entries.get(key)
        if entry is None or entry.setter != peer:
            raise BadMessage(f"key {key!r} was not to be filled by this worker")
        entry.filled, entry.setter = True, None
        self._serials.pop(entry.serial, None)
        waiting = [*entry.declared, *entry.finding]
        entry.declared, entry.finding = [], []
        return [(one, _known(entry)) for one in waiting]

    def _why_full(self, key: Key) -> str:
        full = len(self._entries) >= MOST_KEYS
        return f"key {key!r}: is one too many; accepted: {MOST_KEYS:,} keys" if full else ""

    def _place(self, entry: _Entry) -> SENT:
        """Ask servers to keep it."""
        entry.serial = next(self._next_serial)
        entry.cuts = [StoredSlice(next(self._next_slice), *one) for one in self._cut(entry.kind)]
        entry.missing = {one.server for one in entry.cuts}
        self._serials[entry.serial] = entry
        self._weigh(entry, 1)
        sent: SENT = []
        for number in entry.missing:
            own = [one for one in entry.cuts if one.server == number]
            if (peer := self._servers.get(number)) is not None:  # else all workers know it
                sent.append((peer, AddSlices(entry.serial, entry.key, entry.kind, own)))
        return sent

    def _cut(self, kind: TensorKind) -> Iterable[tuple[int, int, int]]:
        """Server, start and end of each slice."""
        servers = self._settings.servers
        if self._settings.whole or kind.size * kind.value_bytes < CUT_BYTES:
            return [(min(range(servers), key=self._loads.__getitem__), 0, kind.size)]
        slices = cut([[Range("", 0, kind.size)]], {}, servers, BLOCK_VALUES)
        return [(one.shard, part.start, part.end) for one in slices for part in one.parts]

    def _weigh(self, entry: _Entry, sign: int) -> None:
        for one in entry.cuts:
            self._loads[one.server] += sign * (one.end - one.start) * entry.kind.value_bytes

    def _added(self, number: int, serial: int, why: str) -> SENT:
        entry = self._serials.get(serial)
        if entry is None or number not in entry.missing:
            return []
        if why:
            waiting = [*entry.declared, *entry.finding]
            return [*self._remove(entry), *((one, Refused(entry.key, why)) for one in waiting)]
        entry.missing.discard(number)
        return [] if entry.missing else self._fill(entry)

    def _fill(self, entry: _Entry) -> SENT:
        """Let the first who has values send them."""
        if not entry.declared:
            return [*self._remove(entry), *((one, Refused(entry.key, unknown(entry.key))) for one in entry.finding)]
        entry.setter = entry.declared.pop(0)
        return [(entry.setter, _known(entry, fill=True))]

    def _remove(self, entry: _Entry) -> SENT:
        """Remove a key; no server keeps anything of it."""
        del self._entries[entry.key]
        return self._displace(entry)

    def _displace(self, entry: _Entry) -> SENT:
        del self._serials[entry.serial]
        self._weigh(entry, -1)
        return [
            (peer, Drop([one.number for one in entry.cuts if one.server == number]))
            for number, peer in self._servers.items()
            if any(one.server == number for one in entry.cuts)
        ]

    # Those who go

    def _worker_left(self, peer: int, worker: int) -> SENT:
        sent: SENT = []
        for entry in list(self._serials.values()):
            entry.declared = [one for one in entry.declared if one != peer]
            entry.finding = [one for one in entry.finding if one != peer]
            if entry.setter == peer:
                entry.setter = None
                sent += [*self._displace(entry), *self._place(entry)] if entry.declared else self._fill(entry)
        left = Left(worker, self._goodbyes.pop(peer, None))
        if self._settings.mode == "sync":
            self._left.append(left)
            sent += [(other, left) for other in self._workers]
        return sent

    def _server_lost(self, number: int, failed: Failed) -> SENT:
        if number in self.lost:
            return []
        self.lost[number] = failed
        self._servers.pop(number, None)
        self._ports.pop(number, None)
        self._changed()
        return [(peer, Lost(has_ended(number, failed))) for peer in self._workers]


def has_ended(number: int, failed: Failed) -> str:
    """The sentence about server `number`, which has ended."""
    return f"server {number} of the store has ended, and what it kept is gone" + (failed.why and f": {failed.why}")


def _known(entry: _Entry, *, fill: bool = False) -> Known:
    return Known(entry.key, entry.kind, entry.cuts, fill)
