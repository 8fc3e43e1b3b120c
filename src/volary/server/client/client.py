"""One worker's view of all servers: a plain state machine, without tensors, threads or a clock.

It says what is to be sent to whom, so that whatever is pushed is held by all servers of its shard, and whatever is
pulled is asked of one that is there, however many of them go.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from volary.server.protocol.header import Form, Header, MessageKind
from volary.server.protocol.slices import Slice
from volary.server.protocol.to_members import View

NONE_YET = -1  # the version of a slice of which nothing has been received
ASKED = (MessageKind.PUSH, MessageKind.PULL, MessageKind.SET)


@dataclass(frozen=True)
class SendToServer:
    """Send a header to a server; behind that of a push the contribution's values."""

    server: int
    header: Header


@dataclass(frozen=True)
class Held:
    """All servers of its shard hold the contribution to a slice: its memory may change."""

    slice: int
    clock: int


@dataclass(frozen=True)
class HeldAll:
    """The contribution to all slices is held: no death of a server loses it while each shard has one left."""

    clock: int


@dataclass(frozen=True)
class Installed:
    """The values of a slice have come to where they were awaited, in so many bytes.

    snapshot: 0, or the kept state that they are of.
    """

    slice: int
    version: int
    snapshot: int
    length: int


@dataclass(frozen=True)
class RequestRefused:
    """A server has said that what it was sent makes no sense. kind: PUSH, PULL or SET."""

    server: int
    kind: MessageKind
    slice: int
    clock: int
    snapshot: int


Event: TypeAlias = Held | HeldAll | Installed | RequestRefused
Action: TypeAlias = SendToServer | Event


@dataclass
class _Push:
    """sent: to the servers that are connected; held_by: that hold it."""

    header: Header
    sent: set[int] = field(default_factory=set)
    held_by: set[int] = field(default_factory=set)


@dataclass
class _Pull:
    """wanted: the least version; asked: the request that is out, to `server`. No server: there is none to ask."""

    slice: int
    snapshot: int
    wanted: int
    asked: Header | None = None
    server: int = -1


class Client:
    """Decides what `worker` pushes to and pulls from the servers of these slices; a contribution has all of them.

    A server is sent something from `connected` to `lost`. Call `lost` once nothing more is received from it: only
    then others are asked for what it was to answer, as two answers must not be received into one place.
    """

    def __init__(self, slices: Sequence[Slice], worker: int) -> None:
        self._worker = worker
        self._shard = {one.number: one.shard for one in slices}
        self._versions = dict.fromkeys(self._shard, NONE_YET)
        self._view = View(number=-1, shards=[], addresses={})
        self._connected: set[int] = set()
        self._pushes: dict[tuple[int, int], _Push] = {}  # by slice and clock, those that are not held
        self._missing: dict[int, int] = {}  # slices that are not held, by clock
        self._pulls: dict[tuple[int, int], _Pull] = {}  # by slice and snapshot
        self._held_versions: dict[int, int] = {}
        self._giver: dict[int, int] = {}  # by slice, whose values are here, over the connection that stands
        self._requests = 0

    def add(self, slices: Sequence[Slice]) -> None:
        """Add slices that are pushed and pulled from now on."""
        for one in slices:
            self._shard[one.number] = one.shard
            self._versions[one.number] = NONE_YET

    def version(self, number: int) -> int:
        """The newest of slice `number` that has been received; NONE_YET if none has."""
        return self._versions[number]

    def held_version(self, number: int) -> int:
        """The newest version of slice `number` that a server has named when it held something; 0 if none has.

        Where servers decide on updates themselves, the update with what was held is no newer.
        """
        return self._held_versions.get(number, 0)

    def held(self, clock: int) -> bool:
        """Whether nothing that was pushed at this clock waits to be held."""
        return clock not in self._missing

    def pulling(self, number: int, snapshot: int = 0) -> bool:
        """Whether values of slice `number` have been asked for and have not come."""
        return (number, snapshot) in self._pulls

    # What the worker wants

    def push(self, number: int, clock: int, version: int, used: int, form: Form, length: int) -> list[Action]:
        """Contribute to slice `number`, once at each clock. version: of the values that it was computed with."""
        return self._contribute(
            Header(MessageKind.PUSH, number, self._worker, clock, version, form, used=used, length=length)
        )

    def set(self, number: int, clock: int, length: int) -> list[Action]:
        """Give slice `number` its first values; held like a push."""
        return self._contribute(Header(MessageKind.SET, number, self._worker, clock, length=length))

    def begin(self, clock: int, slices: int) -> None:
        """Note, before the first of them, that only so many slices are pushed or set at this clock."""
        self._missing[clock] = slices

    def pull(self, number: int, at_least: int, snapshot: int = 0) -> list[Action]:
        """Ask for values of slice `number`, no older than `at_least` and than those that have come; or for kept ones.

        They may be the same as have come; `version(number) + 1` asks for newer ones. What has been asked and has not
        come is not asked twice: should it turn out to be too old, it is asked for again.
        """
        wanted = at_least if snapshot else max(at_least, self._versions[number], 0)
        if earlier := self._pulls.get((number, snapshot)):
            earlier.wanted = max(earlier.wanted, wanted)
            return []
        self._pulls[number, snapshot] = pull = _Pull(number, snapshot, wanted)
        return self._ask(pull)

    # What becomes of the servers

    def view(self, view: View) -> list[Action]:
        """Take a new view of who serves; ignore one that is older than the last."""
        if view.number <= self._view.number:
            return []
        self._view = view
        actions: list[Action] = []
        for push in list(self._pushes.values()):
            actions += self._offer(push)
            actions += self._settle(push)
        return actions + self._ask_open()

    def connected(self, server: int) -> list[Action]:
        """Note a new connection to the server."""
        self._connected.add(server)
        actions: list[Action] = []
        for push in self._pushes.values():
            actions += self._offer(push)
        return actions + self._ask_open()

    def lost(self, server: int) -> list[Action]:
        """The connection has ended, and nothing more is received from it."""
        self._connected.discard(server)
        self._giver = {number: other for number, other in self._giver.items() if other != server}
        for push in self._pushes.values():
            push.sent.discard(server)
        for pull in self._pulls.values():
            if pull.server == server:
                pull.server, pull.asked = -1, None
        return self._ask_open()

    # What the servers say

    def awaits(self, server: int, header: Header) -> bool:
        """Whether these values have been asked for; others are read past."""
        pull = self._pulls.get((header.slice, header.snapshot))
        if header.kind != MessageKind.VALUES or pull is None or pull.asked is None or pull.server != server:
            return False
        return header.clock == pull.asked.clock and header.version >= pull.asked.version

    def received(self, server: int, header: Header) -> list[Action]:
        """A whole message; values lie where they were awaited. What is not awaited says nothing."""
        if header.kind == MessageKind.VALUES and self.awaits(server, header):
            return self._arrived(self._pulls[header.slice, header.snapshot], header)
        if header.kind == MessageKind.HELD and (push := self._pushes.get((header.slice, header.clock))):
            push.held_by.add(server)
            self._held_versions[header.slice] = max(self.held_version(header.slice), header.version)
            return self._settle(push)
        if header.kind == MessageKind.REFUSED and header.slice in self._shard and header.version in ASKED:
            return self._refused(server, header)
        return []

    def _contribute(self, header: Header) -> list[Action]:
        self._pushes[header.slice, header.clock] = push = _Push(header)
        self._missing.setdefault(header.clock, len(self._shard))
        return self._offer(push)

    def _offer(self, push: _Push) -> list[Action]:
        """Send a push to the servers that are there and have not been sent it."""
        actions: list[Action] = []
        for server in self._servers(push.header.slice):
            if server in self._connected and server not in push.sent and server not in push.held_by:
                push.sent.add(server)
                actions.append(SendToServer(server, push.header))
        return actions

    def _settle(self, push: _Push) -> list[Action]:
        """Settle a push once somebody serves its shard and all who do have said that they hold it."""
        servers, header = self._servers(push.header.slice), push.header
        if not servers or not push.held_by.issuperset(servers):
            return []
        del self._pushes[header.slice, header.clock]
        self._missing[header.clock] -= 1
        if self._missing[header.clock]:
            return [Held(header.slice, header.clock)]
        del self._missing[header.clock]
        return [Held(header.slice, header.clock), HeldAll(header.clock)]

    def _ask(self, pull: _Pull) -> list[Action]:
        """The first who is there."""
        server = next((one for one in self._servers(pull.slice) if one in self._connected), None)
        if server is None:
            return []
        self._requests += 1
        pull.server = server
        clock, form = self._requests, Form.EXACT if pull.snapshot else self._form(pull.slice, server)
        pull.asked = Header(
            MessageKind.PULL, pull.slice, self._worker, clock, pull.wanted, form, pull.snapshot, length=0
        )
        return [SendToServer(server, pull.asked)]

    def _form(self, number: int, server: int) -> Form:
        """Differences are to what this server gave last, which nobody else's values must have come over."""
        if self._giver.get(number) == server:
            return Form.DIFFERENCE
        self._giver.pop(number, None)
        return Form.EXACT

    def _ask_open(self) -> list[Action]:
        return [action for pull in self._pulls.values() if pull.asked is None for action in self._ask(pull)]

    def _arrived(self, pull: _Pull, header: Header) -> list[Action]:
        installed = Installed(header.slice, header.version, header.snapshot, header.length)
        if not header.snapshot:
            self._versions[header.slice], self._giver[header.slice] = header.version, pull.server
        if pull.wanted > header.version:
            return [installed, *self._ask(pull)]
        del self._pulls[header.slice, header.snapshot]
        return [installed]

    def _refused(self, server: int, header: Header) -> list[Action]:
        kind = MessageKind(header.version)
        if kind == MessageKind.PULL:
            pull = self._pulls.get((header.slice, header.snapshot))
            if pull is None or pull.server != server or pull.asked is None or pull.asked.clock != header.clock:
                return []
            del self._pulls[header.slice, header.snapshot]
        return [RequestRefused(server, kind, header.slice, header.clock, header.snapshot)]

    def _servers(self, number: int) -> Sequence[int]:
        shard = self._shard[number]
        return self._view.shards[shard] if shard < len(self._view.shards) else ()
