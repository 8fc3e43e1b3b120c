"""A served store as one of its workers sees it."""

from __future__ import annotations

import itertools
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Self

from volary.comm.channels.channel import Credentials
from volary.comm.transports.auto import AutoTransport
from volary.errors import PeerLost, ServerLost, VolaryError
from volary.server.client.client import Client
from volary.server.client.link import Link
from volary.server.protocol.slices import Slice
from volary.server.protocol.to_members import View
from volary.server.shards.buffer_pool import BufferPool
from volary.sharding.ranges import Range
from volary.store.client.buffers import Entry
from volary.store.client.control import CONNECT_TIMEOUT_S, Admission, Control, admitted
from volary.store.messages import Declare, Filled, Find, Goodbye, Known, Left, Lost
from volary.store.tensors import as_bytes, check_key, empty, kind_of, lies_plain, require_same

if TYPE_CHECKING:
    from torch import Tensor

    from volary.comm.channels.channel import Channel, Payload
    from volary.store.protocol import Key

UNDER_WAY = 4  # pushes of a key that may be read still; one more waits for one of them
AHEAD = 8  # pushes of a key that are not known to be applied: so many may wait at the servers


def connected(address: str, key_file: Path, worker: int) -> RemoteStore:
    """A served store at this address, for this worker; see `volary.store.connect`. Raises what that raises."""
    return RemoteStore(admitted(address, key_file, worker))


class RemoteStore:
    """A `volary.store.protocol.Store`. Several threads may use it; those with the same key take turns."""

    def __init__(self, admission: Admission) -> None:
        welcome = admission.welcome
        self._workers, self._sync = welcome.workers, welcome.mode == "sync"
        self._left: dict[int, dict[int, int] | None] = {}
        self._clocks = itertools.count()
        self._finding = threading.Lock()
        transport = AutoTransport()

        def connect(server: int, address: tuple[str, int]) -> Channel:
            wanted = Credentials(admission.key, admission.connection.attempt_id, server, welcome.security)
            return transport.connect(address, wanted, {"worker": welcome.number}, CONNECT_TIMEOUT_S)

        self._entries: dict[Key, Entry] = {}
        self._pool = BufferPool(transport.memory)
        self._client = Client([], welcome.number)
        self._link = Link(self._client, connect, self._unreachable)
        servers = range(len(welcome.ports))
        addresses = {number: (admission.host, welcome.ports[number]) for number in servers}
        self._link.view(View(0, [[number] for number in servers], addresses))
        self._control = Control(admission.connection, self._link, self._notify)

    def init(self, key: Key, tensor: Tensor) -> None:
        kind = kind_of(key, tensor)
        with self._finding:
            if key in self._entries:
                require_same(key, self._entries[key].place.kind, tensor)
                return
            place = self._control.ask(Declare(key, kind))
            entry = self._enter(place)
            if place.fill:
                clock, memory = self._pack(entry, tensor)
                with self._link.changed:
                    for number, values in entry.slices(memory):
                        self._link.set(number, clock, values)
                self._link.wait_for(lambda: self._client.held(clock), lambda: f"word that key {key!r} is held")
                self._control.send(Filled(key))

    def push(self, key: Key, tensor: Tensor) -> None:
        self._link.check()
        entry = self._find(key)
        require_same(key, entry.place.kind, tensor)
        with entry.lock:
            if entry.pushed - entry.seen >= AHEAD:
                self._fetch(entry, empty(entry.place.kind), entry.pushed - AHEAD // 2)
            clock, memory = self._pack(entry, tensor)
            with self._link.changed:
                for number, values in entry.slices(memory):
                    self._link.push(number, clock, max(0, self._client.version(number)), values)
            entry.pushed += 1

    def pull(self, key: Key, out: Tensor | None = None) -> Tensor:
        self._link.check()
        entry = self._find(key)
        if out is not None:
            require_same(key, entry.place.kind, out)
        target = out if out is not None and lies_plain(out) else empty(entry.place.kind)
        with entry.lock:
            self._fetch(entry, target, entry.pushed)
        if out is None or target is out:
            return target
        out.detach().copy_(target)
        return out

    def close(self) -> None:
        try:
            self._link.wait_for(lambda: all(map(self._held, self._entries.values())), lambda: "word of pushes")
            self._link.check()  # what has arrived may be gone again
            self._control.send(Goodbye({entry.name: entry.pushed for entry in self._entries.values()}))
        finally:
            self._end()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            self.close()
        else:  # others are to hear of it, not to wait
            self._end()

    def _end(self) -> None:
        self._control.close()
        self._link.close()

    def _find(self, key: Key) -> Entry:
        check_key(key)
        with self._finding:
            entry = self._entries.get(key)
            return entry or self._enter(self._control.ask(Find(key)))

    def _enter(self, place: Known) -> Entry:
        with self._link.changed:
            cuts = [(one.number, one.server, Range("", one.start, one.end)) for one in place.cuts]
            self._client.add([Slice(number, server, 0, (part,)) for number, server, part in cuts])
            self._entries[place.key] = entry = Entry(place.key, place)
            return entry

    def _pack(self, entry: Entry, tensor: Tensor) -> tuple[int, Payload]:
        """Wait for memory, copy the tensor there; returns the clock at which it leaves, and that memory."""

        def there() -> bool:
            for clock in [one for one in entry.rooms if self._link.is_free(one)]:
                self._pool.give(entry.rooms.pop(clock))
            return len(entry.rooms) < UNDER_WAY

        self._link.wait_for(there, lambda: f"word that earlier pushes of key {entry.key!r} are held")
        clock = next(self._clocks)
        memory = entry.pack(tensor, clock, self._pool)
        with self._link.changed:
            self._client.begin(clock, len(entry.place.cuts))
        return clock, memory

    def _held(self, entry: Entry) -> bool:
        return all(map(self._client.held, entry.rooms))

    def _fetch(self, entry: Entry, target: Tensor, count: int) -> None:
        """Get values that have the first `count` of our pushes, and in sync mode no later ones."""
        if not self._sync:  # then servers have named the update that they are in
            self._link.wait_for(lambda: self._held(entry), lambda: f"word that pushes of key {entry.key!r} are held")
            count = entry.pushed
        with self._link.changed:
            for number, values in entry.slices(as_bytes(target)):
                self._link.pull(number, count if self._sync else self._client.held_version(number), values)
        try:
            self._link.wait_for(
                lambda: self._arrived(entry) or bool(self._why_never(entry, count)),
                lambda: f"values of key {entry.key!r}",
            )
        except BaseException as problem:  # values that come later have no place any more
            sentence = f"an earlier pull of key {entry.key!r} was broken off"
            self._link.fail(problem if isinstance(problem, VolaryError) else VolaryError(sentence))
            raise
        finally:  # the tensor is the user's again
            for number in entry.numbers:
                self._link.forget(number)
        if not self._arrived(entry):
            raise PeerLost(self._why_never(entry, count))
        entry.seen = max(entry.seen, count)

    def _arrived(self, entry: Entry) -> bool:
        return not any(self._client.pulling(number) for number in entry.numbers)

    def _why_never(self, entry: Entry, count: int) -> str:
        """Why there will be no update of this number; empty if there may be one."""
        why = f"key {entry.key!r}: update {count} is a push of each of the store's {self._workers} workers"
        for worker, pushes in self._left.items():
            if pushes is None:
                return f"{why}, and worker {worker} has died or broken off"
            if pushes.get(entry.name, 0) < count:
                return f"{why}, and worker {worker} left after {pushes.get(entry.name, 0)}"
        return ""

    def _notify(self, message: Left | Lost) -> None:
        if isinstance(message, Lost):
            self._link.fail(ServerLost(message.why))
        else:
            self._left[message.worker] = message.pushes

    def _unreachable(self, server: int) -> None:
        self._link.fail(ServerLost(f"server {server} of the store cannot be reached from here"))
