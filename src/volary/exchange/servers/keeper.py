"""Servers keep the parameters: contributions leave slice by slice, values come before they are read."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from volary.exchange.servers.pulled import Pulled, PullState
from volary.run.database.traffic import Traffic
from volary.server.client.client import Held, HeldAll, Installed, RequestRefused
from volary.server.protocol.header import Form, Header, MessageKind

if TYPE_CHECKING:
    from volary.comm.transports._base import Payload
    from volary.exchange.compression.push_encoding import PushEncoding
    from volary.exchange.compression.residual import ResidualState
    from volary.exchange.gradients.bucket import ParameterGate
    from volary.exchange.servers.transfer_times import TransferTimes
    from volary.server.client.link import Link
    from volary.server.protocol.slices import Slice


class Pushed(Protocol):
    """What is pushed of one slice; see `volary.exchange.servers.pushed`."""

    form: Form

    @property
    def length(self) -> int:
        """The number of bytes that travel."""
        ...

    @property
    def codec(self) -> str:
        """What made those bytes; `none` if they are the values."""
        ...

    def used(self) -> int:
        """A bit for each part that has a gradient."""
        ...

    def ready(self) -> None:
        """The values are whole, and may leave."""
        ...

    def leave(self, header: Header) -> tuple[Header, Payload]:
        """What travels, and the header as it is sent."""
        ...


@dataclass(frozen=True)
class WorkerSlice:
    """One slice on a worker: what leaves of it, and what comes."""

    slice: Slice
    pushed: Pushed
    pulled: Pulled


class ServerKeeper:
    """See `volary.exchange._base.Keeper`. Of slices in the order in which forward uses them.

    gates: of each parameter, and before which slices it stands. encoding: of what is pushed.
    held: called with each contribution that all servers hold. came: with each slice's values that are here. times: is
    told of each slice when it leaves and comes.
    Used by the training thread, but for what is said otherwise.
    """

    def __init__(
        self,
        link: Link,
        slices: Sequence[WorkerSlice],
        gates: Mapping[int, tuple[ParameterGate, Sequence[int]]],
        encoding: PushEncoding,
        held: Callable[[int], None],
        came: Callable[[], None],
        times: TransferTimes,
    ) -> None:
        self._times = times
        self._link, self._gates, self._held, self._came, self._encoding = link, gates, held, came, encoding
        self.slices = {one.slice.number: one for one in slices}  # as forward uses them
        chunks: dict[int, list[WorkerSlice]] = {}
        for one in slices:
            chunks.setdefault(one.slice.chunk, []).append(one)
        self._chunks = chunks
        self._needed = 0
        self._clock = self._pushed = -1  # the contribution at hand, and that of which something was pushed last
        self._snapshot: dict[int, Payload] = {}
        self._snapshot_left: set[int] = set()
        self._snapshot_gone = False
        self._counting = threading.Lock()
        self._counted: dict[str, list[int]] = {}  # bytes sent, received, and as values would be, by codec
        link.start(self, {number: place for place, number in enumerate(self.slices)})

    @property
    def sent_bytes(self) -> int:
        return self._link.traffic[0]

    @property
    def received_bytes(self) -> int:
        return self._link.traffic[1]

    @property
    def traffic(self) -> tuple[Traffic, ...]:
        with self._counting:
            return tuple(Traffic(codec, "servers", *counted) for codec, counted in self._counted.items())

    # Pushing

    def settle(self) -> None:
        """Wait until servers hold all that was pushed."""
        clock = self._pushed
        self._link.wait_for(lambda: self._link.is_held(clock), lambda: f"the servers' word that they hold step {clock}")

    def push(self, chunk: int) -> None:
        self._pushed = self._clock
        for worker_slice in self._chunks.get(chunk, ()):
            pushed = worker_slice.pushed
            pushed.ready()
            version = max(0, worker_slice.pulled.installed)
            self._link.push(worker_slice.slice.number, self._clock, version, pushed.used(), pushed.form, pushed.length)

    # Pulling

    def ask_ahead(self) -> None:
        """Backward begins: ask for all slices, so that something newer is here when it ends; what is read stays."""
        for number in self.slices:
            self._ask(number)

    def release(self, at_least: int) -> None:
        """Ask for all slices, of at least this version, before they are read again."""
        self._needed = max(self._needed, at_least)
        for number in self.slices:
            self._ask(number)
        self._shut()

    def begin(self, clock: int, at_least: int) -> None:
        """Contribution `clock` begins: nothing older is read from now on, and what has not been asked for is."""
        self._needed = max(self._needed, at_least)
        for number, worker_slice in self.slices.items():
            if worker_slice.pulled.version < self._needed:
                self._ask(number)
        self._clock = clock
        self._shut()

    def _ask(self, number: int) -> None:
        self._times.asked(number, self._clock)
        self._link.pull(number, self._needed)

    def _shut(self) -> None:
        for worker_slice in self.slices.values():
            worker_slice.pulled.in_use = False
        for gate, _ in self._gates.values():
            gate.waits = 1

    def pull(self, gate: ParameterGate) -> None:
        """Wait until what is behind `gate` is new enough, and let the network have the newest that is here."""
        behind = self._behind(gate)
        self._link.wait_for(lambda: self._ready(behind), lambda: f"{gate.name}, as of update {self._needed},")
        self._install(self._gates[id(gate)][1])
        gate.waits = 0

    def pull_rest(self, numbers: Iterable[int]) -> None:
        """The same for slices that stand behind no gate."""
        numbers = list(numbers)
        behind = [self.slices[number].pulled for number in numbers]
        self._link.wait_for(lambda: self._ready(behind), lambda: f"buffers, as of update {self._needed},")
        self._install(numbers)

    def state(self, *, copied: bool = True) -> ResidualState:
        return self._encoding.state(copied=copied)

    def restore(self, states: Sequence[ResidualState]) -> None:
        self._encoding.restore(states)

    def close(self) -> None:
        self._link.close()

    def _behind(self, gate: ParameterGate) -> list[Pulled]:
        return [self.slices[number].pulled for number in self._gates[id(gate)][1]]

    def _ready(self, behind: Iterable[Pulled]) -> bool:
        return all(
            one.installed >= self._needed or (one.state is PullState.HERE and one.version >= self._needed)
            for one in behind
        )

    def _install(self, numbers: Sequence[int]) -> None:
        behind = {number: self.slices[number].pulled for number in numbers}
        with self._link.changed:
            here = {number: one for number, one in behind.items() if one.state is PullState.HERE and not one.in_use}
            for one in behind.values():
                one.in_use = True
            for one in here.values():
                one.state = PullState.INSTALLING
        for number, one in here.items():
            started_s = time.perf_counter()
            one.install()
            self._times.installed(number, started_s, time.perf_counter())
        with self._link.changed:
            for one in here.values():
                one.state, one.installed = PullState.READ, one.version
            self._link.changed.notify_all()

    # A kept state

    def pull_snapshot(self, snapshot: int, into: Mapping[int, Payload]) -> bool:
        """Fetch the state that is kept as `snapshot`; by slice, where to. False: it is not kept any more."""
        with self._link.changed:
            self._snapshot, self._snapshot_left, self._snapshot_gone = dict(into), set(into), False
        for number in into:
            self._link.pull(number, 0, snapshot)
        self._link.wait_for(
            lambda: self._snapshot_gone or not self._snapshot_left, lambda: f"snapshot {snapshot} of the parameters"
        )
        return not self._snapshot_gone

    # What the link asks and tells, from its threads

    def leave(self, header: Header) -> tuple[Header, Payload]:
        self._times.leaves(header.slice, header.clock)
        return self.slices[header.slice].pushed.leave(header)

    def place(self, header: Header) -> Payload | None:
        pulled = self.slices[header.slice].pulled
        if header.snapshot:
            return self._snapshot[header.slice]
        room = pulled.room(header)
        while pulled.state is PullState.INSTALLING:  # a copy, which ends by itself
            self._link.changed.wait()
        if header.form is Form.EXACT:
            pulled.state = PullState.ARRIVING
        return room

    def landed(self, header: Header, payload: Payload) -> None:
        self._came()
        pulled = self.slices[header.slice].pulled
        if header.snapshot:
            room = self._snapshot[header.slice]
            if payload is not room:
                room[:] = payload
            return
        with self._link.changed:
            while pulled.state is PullState.INSTALLING:
                self._link.changed.wait()
            pulled.state = PullState.ARRIVING
        pulled.take(header, payload)
        with self._link.changed:
            pulled.state, pulled.version = PullState.HERE, header.version  # the client says so next, to whoever waits
        self._times.came(header.slice, header.length)

    def carried(self, header: Header, sent: int, received: int) -> None:
        """So many bytes of a message have gone over a wire; of what is lent its announcement alone does."""
        codec, plain = "none", sent + received
        if header.length and plain >= header.length and not header.snapshot:
            worker_slice = self.slices[header.slice]
            codec = worker_slice.pushed.codec if header.kind is MessageKind.PUSH else "none"
            codec = worker_slice.pulled.codec if header.form is Form.DIFFERENCE else codec
            plain += worker_slice.pulled.value_bytes - header.length if codec != "none" else 0
        with self._counting:
            counted = self._counted.setdefault(codec, [0, 0, 0])
            for place, more in enumerate((sent, received, plain)):
                counted[place] += more

    def happened(self, event: Held | HeldAll | Installed | RequestRefused) -> None:
        if isinstance(event, Held):
            self._times.held(event.slice, event.clock, self.slices[event.slice].pushed.length)
        elif isinstance(event, HeldAll):
            self._held(event.clock)
        elif isinstance(event, Installed) and event.snapshot:
            self._snapshot_left.discard(event.slice)
        elif isinstance(event, RequestRefused) and event.kind is MessageKind.PULL and event.snapshot:
            self._snapshot_gone = True
