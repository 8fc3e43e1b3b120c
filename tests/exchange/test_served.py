"""A worker that asks ahead: newer values come under backward, what is read stays, and nobody waits for more."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from torch import nn

from server.test_host import SIZE, WITHIN_S, Serving, closed, closing, serving
from volary.codec import ROOM as CODECS
from volary.comm.control.errors import ConnectionLost
from volary.exchange.compression.push_encoding import PushEncoding
from volary.exchange.gradients.bucket import ParameterGate
from volary.exchange.gradients.plan import BucketPlan
from volary.exchange.representations._base import Piece, Representation
from volary.exchange.representations.exact import EXACT
from volary.exchange.servers.keeper import ServerKeeper, WorkerSlice
from volary.exchange.servers.pulled import Pulled
from volary.exchange.servers.transfer_times import TransferTimes
from volary.server.client.client import Client
from volary.server.client.link import Link
from volary.server.protocol.header import Header, MessageKind
from volary.server.protocol.slices import Slice
from volary.server.protocol.to_members import View
from volary.sharding.ranges import Range

SLICES = [Slice(number, 0, number, (Range(f"p{number}", 0, SIZE),)) for number in range(4)]


class Kept:
    """See `volary.exchange.servers.transfer_times.SpanLog`."""

    recording = True

    def __init__(self) -> None:
        self.all: list[tuple[int, str, str, float, float, int]] = []

    def add(self, step: int, kind: str, name: str, start_s: float, end_s: float, size_bytes: int = 0) -> None:
        self.all.append((step, kind, name, start_s, end_s, size_bytes))


class Learner:
    """Worker 0 of a server, with a gate before each slice; it pushes the same gradient again and again.

    codec: of pulls. representation: in which it pushes.
    """

    def __init__(
        self, connect: Callable[[int, tuple[str, int]], Any], codec: Any, representation: Representation
    ) -> None:
        self.gradient = torch.randn(SIZE, generator=torch.Generator().manual_seed(0))
        self.memory = [self.gradient.clone() for _ in SLICES]
        cpu, parameters = torch.device("cpu"), [nn.Parameter(torch.zeros(SIZE)) for _ in SLICES]
        named = [(f"p{place}", one) for place, one in enumerate(parameters)]
        plans = [BucketPlan([one], torch.float32, cpu, representation) for one in named]
        encoding, used = PushEncoding(plans, None), torch.ones(1)
        self.network = [torch.zeros(SIZE) for _ in SLICES]
        self.pulled = [Pulled([values], codec) for values in self.network]
        self.gates = [ParameterGate(f"slice {one.number}") for one in SLICES]
        self.link = Link(Client(SLICES, 0), connect, lambda server: None)
        pieces = [
            Piece(place, plan, plan.head, SLICES[place].parts, self.memory[place], used, None)
            for place, plan in enumerate(plans)
        ]
        slices = [
            WorkerSlice(one, representation.pushed(piece, encoding), pulled)
            for one, piece, pulled in zip(SLICES, pieces, self.pulled, strict=True)
        ]
        gates = {id(gate): (gate, [number]) for number, gate in enumerate(self.gates)}
        self.clock, self.spans = 0, Kept()
        times = TransferTimes(self.spans, {one.number: f"slice {one.number}" for one in SLICES})
        self.exchange = ServerKeeper(self.link, slices, gates, encoding, lambda clock: None, lambda: None, times)

    def contribute(self, clock: int) -> None:
        self.clock = clock
        self.exchange.begin(clock, 0)
        for one in SLICES:
            self.exchange.push(one.chunk)
        self.exchange.settle()

    def await_version(self, version: int) -> None:
        self.link.wait_for(lambda: all(one.version == version for one in self.pulled), lambda: f"version {version}")

    def read(self, needed: int) -> None:
        self.exchange.begin(self.clock, needed)
        for gate in self.gates:
            self.exchange.pull(gate)


@contextmanager
def learning(
    server: Serving,
    wrap: Callable[[Any], Any] = lambda channel: channel,
    codec: Any = None,
    representation: Representation = EXACT,
) -> Iterator[Any]:
    def connect(number: int, address: tuple[str, int]) -> Any:
        return wrap(server.transport.connect(address, server.own, {"worker": 0}, WITHIN_S))

    one = Learner(connect, codec, representation)
    one.link.view(View(0, [[0]], {0: server.address}))
    try:
        yield one
    finally:
        one.link.close()


def update(server: Serving, number: int) -> None:
    """Apply worker 0's contribution, and wait until that is done."""
    server.host.order(lambda: server.host.shard.close(closing(number, (0, number - 1))))
    with closed(server.worker(1)) as other:
        for one in SLICES:
            other.pull(one.number, at_least=number)


def test_it_is_kept_when_each_slice_left_was_held_came_back_and_was_put_into_the_network():
    with serving() as server, learning(server) as one:
        one.read(0)
        one.contribute(0)
        update(server, 1)
        one.exchange.release(1)
        one.await_version(1)
        one.clock = 1
        one.read(1)
    found = {(kind, name): (start, end, size) for step, kind, name, start, end, size in one.spans.all if step == 1}
    for number in range(len(SLICES)):
        (left, held, sent), (asked, came, got), (began, ended, _) = (
            found[kind, f"slice {number}"] for kind in ("exchange", "pull", "update")
        )
        assert left < held < asked < came < began < ended
        assert (sent, got) == (4 * SIZE, 4 * SIZE)


@pytest.mark.parametrize("pulls", ["none", "fp16"])
def test_what_is_asked_for_when_backward_begins_is_read_after_it(pulls):
    codec = None if pulls == "none" else CODECS.load(pulls)()
    with serving(pulls=codec) as server, learning(server, codec=codec) as one:
        one.read(0)
        for number in range(1, 4):
            one.contribute(number - 1)
            update(server, number)
            before = [values.clone() for values in one.network]
            one.exchange.ask_ahead()
            one.await_version(number)
            assert all(map(torch.equal, one.network, before))
            one.read(0)
            for values in one.network:
                torch.testing.assert_close(values, number * one.gradient, rtol=0, atol=0.01)


class Torn:
    """A channel that breaks where values of a version have begun to arrive. slice: whose they were."""

    def __init__(self, channel: Any, version: int) -> None:
        self._channel, self._version = channel, version
        self.slice: int | None = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._channel, name)

    def receive(self, place: Callable[[bytes], Any]) -> Any:
        def torn(packed: bytes) -> Any:
            room, header = place(packed), Header.unpack(packed)
            if header.kind is MessageKind.VALUES and header.version == self._version:
                self.slice = header.slice
                raise ConnectionLost("as the test wants it")
            return room

        return self._channel.receive(torn)


def test_values_that_were_new_enough_and_are_torn_by_a_broken_connection_come_again():
    channels: list[Any] = []

    def breaks_once(channel: Any) -> Any:
        channels.append(channel if channels else Torn(channel, version=2))
        return channels[-1]

    with serving() as server, learning(server, breaks_once) as one:
        one.contribute(0)
        update(server, 1)
        one.exchange.ask_ahead()
        one.await_version(1)
        one.contribute(1)
        update(server, 2)
        one.exchange.ask_ahead()
        one.link.wait_for(lambda: len(channels) == 2, lambda: "the next connection")
        one.read(1)
        assert one.pulled[channels[0].slice].installed == 2
        for values, pulled in zip(one.network, one.pulled, strict=True):
            torch.testing.assert_close(values, pulled.installed * one.gradient)
