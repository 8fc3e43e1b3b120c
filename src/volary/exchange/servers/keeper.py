"""Servers keep the parameters: contributions leave slice by slice, values come before they are read."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from volary.exchange.servers.pushed import as_bytes
from volary.run.database.traffic import Traffic
from volary.server.client.client import Held, HeldAll, Installed, RequestRefused
from volary.server.client.link import Carried, Leaving
from volary.server.client.values import PlainMemory
from volary.server.protocol.header import Form, Header, MessageKind

if TYPE_CHECKING:
    from torch import Tensor

    from volary.exchange.compression.push_encoding import PushEncoding
    from volary.exchange.compression.residual import ResidualState
    from volary.exchange.gradients.bucket import ParameterGate
    from volary.exchange.servers.pulled import Pulled
    from volary.exchange.servers.transfer_times import TransferTimes
    from volary.server.client.link import Link, LinkEvent
    from volary.server.client.values import PushedValues
    from volary.server.protocol.slices import Slice


@dataclass(frozen=True)
class WorkerSlice:
    """One slice on a worker: the values that leave, and those that come."""

    slice: Slice
    pushed: PushedValues
    pulled: Pulled


class ServerKeeper:
    """See `volary.exchange._base.Keeper`. Of slices in the order in which forward uses them.

    gates: of each parameter, and before which slices it stands. encoding: of what is pushed.
    held: called with each contribution that all servers hold. arrived: called as values arrive. times: of each slice.
    Used by the training thread, but for what is said otherwise.
    """

    def __init__(
        self,
        link: Link,
        slices: Sequence[WorkerSlice],
        gates: Mapping[int, tuple[ParameterGate, Sequence[int]]],
        encoding: PushEncoding,
        held: Callable[[int], None],
        arrived: Callable[[], None],
        times: TransferTimes,
    ) -> None:
        self._times = times
        self._link, self._gates, self._held, self._arrived, self._encoding = link, gates, held, arrived, encoding
        self.slices = {one.slice.number: one for one in slices}  # as forward uses them
        chunks: dict[int, list[WorkerSlice]] = {}
        for one in slices:
            chunks.setdefault(one.slice.chunk, []).append(one)
        self._chunks = chunks
        self._needed = 0
        self._clock = self._pushed = -1  # the contribution at hand, and that of which something was pushed last
        self._snapshot_left: set[int] = set()  # slices of the kept state that is asked for
        self._snapshot_gone = False
        self._counting = threading.Lock()
        self._counted: dict[str, list[int]] = {}  # bytes sent, received, and as values would be, by codec
        link.start(self._happened, {number: place for place, number in enumerate(self.slices)})

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
            version = max(0, worker_slice.pulled.installed)
            self._link.push(worker_slice.slice.number, self._clock, version, worker_slice.pushed)

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
        self._link.pull(number, self._needed, self.slices[number].pulled)

    def _shut(self) -> None:
        for worker_slice in self.slices.values():
            worker_slice.pulled.in_use = False
        for gate, _ in self._gates.values():
            gate.waits = 1

    def pull(self, gate: ParameterGate) -> None:
        """Wait until what is behind `gate` is new enough, and let the network have the newest that is here."""
        self._read(self._gates[id(gate)][1], gate.name)
        gate.waits = 0

    def pull_rest(self, numbers: Sequence[int]) -> None:
        """The same for slices that stand behind no gate."""
        self._read(numbers, "buffers")

    def _read(self, numbers: Sequence[int], what: str) -> None:
        behind = [self.slices[number].pulled for number in numbers]

        def are_new_enough() -> bool:
            return all(one.is_new_enough(self._needed) for one in behind)

        read = False
        while not read:
            self._link.wait_for(are_new_enough, lambda: f"{what}, as of update {self._needed},")
            read = all(self._install(number, one) for number, one in zip(numbers, behind, strict=True))

    def _install(self, number: int, pulled: Pulled) -> bool:
        before, started_s = pulled.installed, time.perf_counter()
        read = pulled.read(self._needed)
        if pulled.installed != before:
            self._times.installed(number, started_s, time.perf_counter())
        return read

    def state(self, *, copied: bool = True) -> ResidualState:
        return self._encoding.state(copied=copied)

    def restore(self, states: Sequence[ResidualState]) -> None:
        self._encoding.restore(states)

    def close(self) -> None:
        self._link.close()

    def pull_snapshot(self, snapshot: int, at_least: int = 0) -> dict[int, Tensor] | None:
        """The state that is kept as `snapshot`, by slice; None: it is not kept any more. Raises PeerLost.

        at_least: the update that AVERAGED or NEWEST values are as of, or a newer one.
        """
        values = {number: torch.empty_like(one.pulled.values) for number, one in self.slices.items()}
        with self._link.changed:
            self._snapshot_left, self._snapshot_gone = set(values), False
        for number, one in values.items():
            self._link.pull(number, at_least, PlainMemory(as_bytes(one)), snapshot)
        self._link.wait_for(
            lambda: self._snapshot_gone or not self._snapshot_left, lambda: f"snapshot {snapshot} of the parameters"
        )
        return None if self._snapshot_gone else values

    def _happened(self, event: LinkEvent) -> None:
        """Take note of what the link reports, in its threads."""
        match event:
            case Leaving():
                self._times.leaves(event.slice, event.clock)
            case Carried():
                self._count(event.header, event.sent, event.received)
            case Held():
                self._times.held(event.slice, event.clock, self.slices[event.slice].pushed.length)
            case HeldAll():
                self._held(event.clock)
            case Installed():
                self._arrived()
                if event.snapshot:
                    self._snapshot_left.discard(event.slice)
                else:
                    self._times.arrived(event.slice, event.length)
            case RequestRefused(kind=MessageKind.PULL) if event.snapshot:
                self._snapshot_gone = True

    def _count(self, header: Header, sent: int, received: int) -> None:
        """Count bytes of a message that have gone over a wire; if it was lent, only its announcement did."""
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
