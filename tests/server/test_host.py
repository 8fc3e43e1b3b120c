"""A server over real sockets: what is pushed is added once, what is read stands still, garbage harms nobody."""

from __future__ import annotations

import contextlib
import queue
import random
import secrets
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
import torch
from torch import distributed

from volary.codec import ROOM as CODECS
from volary.codec.kernels.batches import MatrixBatch
from volary.comm.channels.channel import Credentials
from volary.comm.control.errors import ConnectionLost
from volary.comm.transports import ROOM as TRANSPORTS
from volary.server.protocol.from_members import Kept, PartialNorms
from volary.server.protocol.header import Form, Header, MessageKind
from volary.server.protocol.sections import of_slice
from volary.server.protocol.updates import Closing, Contribution
from volary.server.shard_rule import AllOf, EachAlone, ShardRule
from volary.server.shards.forms import Forms, SliceShape
from volary.server.shards.host import Host
from volary.server.shards.shard import Shard
from volary.server.shards.slice_store import SliceStore
from volary.server.update_rule import SliceUpdate

SIZE = 1000  # values of a slice
LARGE = 2**18  # of one that no socket's buffers hold
WITHIN_S = 60.0  # on a busy machine, too


class Adds:
    """Adds what comes, and remembers how often."""

    changes_sums = False

    def __init__(self) -> None:
        self.often: dict[int, int] = {}

    def apply(self, number, values, update: SliceUpdate) -> None:
        self.often[number] = self.often.get(number, 0) + 1
        for part, pushed in zip(values, update.sums, strict=True):
            if pushed is not None:
                part.add_(pushed, alpha=update.scale)

    def state(self, number: int) -> int:
        return self.often.get(number, 0)

    def restore(self, number: int, state: int) -> None:
        self.often[number] = state


@dataclass
class Serving:
    """A host of `SIZE` zeros for each of some slices, and where it listens."""

    host: Host
    address: tuple[str, int]
    own: Credentials
    transport: Any
    reported: list[Kept | PartialNorms] = field(default_factory=list)

    def worker(self, number: int) -> Worker:
        channel = self.transport.connect(self.address, self.own, {"worker": number}, WITHIN_S)
        return Worker(number, channel)


@contextmanager
def serving(
    transport: str = "tcp",
    local: ShardRule | None = None,
    *,
    shapes: dict[int, SliceShape] | None = None,
    codec: Any = None,
    pulls: Any = None,
    rule: Adds | None = None,
    first: Mapping[int, torch.Tensor] | None = None,
) -> Iterator[Serving]:
    """With a local rule slices come with their first values. first: values of slices that do not begin with zeros."""
    carrier, rule, reported = TRANSPORTS.load(transport)(), rule or Adds(), list[Kept | PartialNorms]()
    shapes = shapes or {number: SliceShape((SIZE,), (SIZE,)) for number in range(4)}
    here = {} if local else shapes
    values = {number: torch.zeros(shape.size, dtype=shape.dtype) for number, shape in here.items()} | dict(first or {})
    shapes = {number: replace(shape, codec=codec) for number, shape in shapes.items()}
    slice_store = SliceStore(Forms(shapes), values, lambda number: rule, memory=carrier.memory)
    shard = Shard({number: shape.size_bytes for number, shape in here.items()}, local=local)
    host = Host(shard, slice_store, pulls=pulls, report=reported.append)
    own = Credentials(secrets.token_bytes(32), "now", 0)
    listener = carrier.listen("127.0.0.1", own, host.accepted)
    try:
        yield Serving(host, listener.address, own, carrier, reported)
    finally:
        listener.close()
        host.close()
        host.check()


class Worker:
    """One worker's end, without any cleverness: it says a thing and waits for the answer."""

    def __init__(self, number: int, channel: Any) -> None:
        self.number, self.channel, self.requests = number, channel, 0

    def say(self, kind: MessageKind, number: int, payload: torch.Tensor | None = None, **more: Any) -> None:
        raw = None if payload is None else payload.flatten().view(torch.uint8).numpy().data
        header = Header(kind, number, more.pop("worker", self.number), length=0 if raw is None else len(raw), **more)
        self.channel.send(header.pack(), raw)

    def hear(self) -> tuple[Header, bytes]:
        memory = list[bytearray]()

        def place(packed: bytes) -> memoryview | None:
            memory.append(bytearray(Header.unpack(packed).length))
            return memoryview(memory[0]) if memory[0] else None

        message = self.channel.receive(place, WITHIN_S)
        payload = b"" if message.payload is None else bytes(message.payload)
        message.release()
        return Header.unpack(message.header), payload

    def push(self, number: int, values: torch.Tensor, clock: int, **more: Any) -> Header:
        self.say(MessageKind.PUSH, number, values, clock=clock, **more)
        return self.hear()[0]

    def first(self, number: int, values: torch.Tensor) -> None:
        self.say(MessageKind.SET, number, values)
        assert self.hear()[0].kind is MessageKind.HELD

    def pull(self, number: int, at_least: int = 0, **more: Any) -> tuple[Header, torch.Tensor]:
        self.requests += 1
        self.say(MessageKind.PULL, number, version=at_least, clock=self.requests, **more)
        header, payload = self.hear()
        exact = header.kind is MessageKind.VALUES and header.form is Form.EXACT
        return header, torch.frombuffer(bytearray(payload), dtype=torch.float32 if exact else torch.uint8)


def ones(scale: float = 1.0) -> torch.Tensor:
    return torch.full((SIZE,), float(scale))


def closing(number: int, *names: tuple[int, int], scale: float = 1.0) -> Closing:
    return Closing(number, tuple(Contribution(*name) for name in names), scale, number)


@pytest.mark.parametrize("transport", ["tcp", "shared"])
def test_what_processes_push_is_added_exactly_once(workers: Any, transport: str) -> None:
    server, *others = workers(4, push_and_pull, transport)
    expected = float(sum(range(1, 4)) * ROUNDS)
    assert server == {number: [expected] for number in range(SLICES)}
    assert others == [[True] * ROUNDS] * 3


ROUNDS, SLICES = 5, 3


def push_and_pull(rank: int, world_size: int, transport: str) -> Any:
    """Rank 0 serves; each other adds its rank to all slices, again and again, and looks at what it reads."""
    where: list[Any] = [None]
    if rank == 0:
        with serving(transport, EachAlone()) as server:
            first = server.worker(0)
            for number in range(SLICES):
                first.first(number, ones(0))
            where[0] = (server.address, server.own)
            distributed.broadcast_object_list(where, 0)
            distributed.barrier()
            first.channel.close()
            return {number: server.host.slice_store.read(number).tensor.unique().tolist() for number in range(SLICES)}
    distributed.broadcast_object_list(where, 0)
    address, own = where[0]
    channel = TRANSPORTS.load(transport)().connect(address, own, {"worker": rank}, WITHIN_S)
    worker, sound = Worker(rank, channel), []
    for clock in range(ROUNDS):
        for number in range(SLICES):
            assert worker.push(number, ones(rank), clock).kind is MessageKind.HELD
        read = [worker.pull(number)[1] for number in range(SLICES)]
        sound.append(all(len(values.unique()) == 1 and values[0] >= rank * (clock + 1) for values in read))
    distributed.barrier()
    channel.close()
    return sound


def test_an_update_is_the_scaled_sum_of_what_its_closing_names() -> None:
    with serving() as server, closed(server.worker(0)) as one, closed(server.worker(1)) as other:
        for worker, scale in ((one, 1.0), (other, 10.0)):
            worker.push(0, ones(scale), 0)
            worker.push(0, ones(100), 1)
        server.host.order(lambda: server.host.shard.close(closing(1, (0, 0), (1, 0), scale=0.5)))
        header, values = one.pull(0, at_least=1)
        assert (header.version, values.unique().tolist()) == (1, [5.5])


def test_a_part_that_nobody_used_is_not_told_as_used() -> None:
    with serving() as server, closed(server.worker(0)) as worker:
        worker.push(0, ones(), 0, used=0)
        server.host.order(lambda: server.host.shard.close(closing(1, (0, 0))))
        header, values = worker.pull(0, at_least=1)
        assert (header.version, values.unique().tolist()) == (1, [0.0])


@pytest.mark.parametrize("transport", ["tcp", "shared"])
def test_a_slow_reader_holds_up_nobody_and_reads_whole_versions(transport: str) -> None:
    shapes = {number: SliceShape((LARGE,), (LARGE,)) for number in range(8)}
    with (
        serving(transport, shapes=shapes) as server,
        closed(server.worker(0)) as slow,
        closed(server.worker(1)) as quick,
    ):
        for number in shapes:
            slow.say(MessageKind.PULL, number, clock=number)
        for clock in range(3):
            for number in shapes:
                quick.push(number, torch.ones(LARGE), clock)
            server.host.order(lambda clock=clock: server.host.shard.close(closing(clock + 1, (1, clock))))
            for number in shapes:
                assert quick.pull(number, at_least=clock + 1)[1].unique().tolist() == [clock + 1]
        for _ in shapes:
            header, payload = slow.hear()
            values = torch.frombuffer(bytearray(payload), dtype=torch.float32)
            assert values.unique().tolist() == [header.version]


def test_a_cut_stays_as_it_was_while_updates_go_on() -> None:
    with serving() as server, closed(server.worker(0)) as worker:
        host = server.host
        for clock in range(4):
            if clock == 2:
                host.order(lambda: host.shard.keep(7, 2))
            for number in range(4):
                worker.push(number, ones(), clock)
            host.order(lambda clock=clock: host.shard.close(closing(clock + 1, (0, clock))))
        for number in range(4):
            assert worker.pull(number, at_least=4)[1].unique().tolist() == [4.0]
            header, values = worker.pull(number, snapshot=7)
            assert (header.version, header.snapshot, values.unique().tolist()) == (2, 7, [2.0])
            assert host.slice_store.kept_state(number, 7) == 2
        assert server.reported == [Kept(7)]
        host.order(lambda: host.shard.release(7))
        assert worker.pull(0, snapshot=7)[0].kind is MessageKind.REFUSED


def test_lent_memory_is_given_back_before_the_update_is_due() -> None:
    with serving("shared", AllOf(2)) as server, closed(server.worker(0)) as one, closed(server.worker(1)) as other:
        one.first(0, ones(0))
        memory, returned = one.channel.memory(4 * SIZE), threading.Event()
        mine = torch.frombuffer(memory, dtype=torch.float32).copy_(ones(3))
        one.channel.send(Header(MessageKind.PUSH, 0, 0, length=4 * SIZE).pack(), memory, returned.set)
        assert one.hear()[0].kind is MessageKind.HELD
        one.say(MessageKind.PULL, 0, version=1, clock=1)  # whoever receives hears that it was given back
        heard = threading.Thread(target=one.hear)
        heard.start()
        assert returned.wait(WITHIN_S)
        mine.fill_(99)
        other.push(0, ones(4), 0)
        heard.join(WITHIN_S)
        assert other.pull(0, at_least=1)[1].unique().tolist() == [7.0]


@pytest.mark.parametrize("name", ["fp16", "bf16", "int8"])
def test_pulled_differences_come_to_what_the_server_has(name: str) -> None:
    codec = CODECS.load(name)()
    shapes = {0: SliceShape((SIZE,), (SIZE,)), 1: SliceShape((SIZE,), (SIZE,), torch.float64)}
    with serving(shapes=shapes, pulls=codec) as server, closed(server.worker(0)) as worker:
        header, has = worker.pull(0, form=Form.DIFFERENCE)
        assert header.form is Form.EXACT
        change = torch.randn(SIZE)
        for clock in range(12):
            worker.push(0, change if clock == 0 else ones(0), clock)
            worker.push(1, change.double(), clock)
            server.host.order(lambda clock=clock: server.host.shard.close(closing(clock + 1, (0, clock))))
            header, frame = worker.pull(0, at_least=clock + 1, form=Form.DIFFERENCE)
            assert header.form is Form.DIFFERENCE
            assert header.length <= 2 * SIZE
            codec.add(frame, has.view(1, -1))
        torch.testing.assert_close(has, change, rtol=0, atol=1e-6)  # what a frame lost came with the next
        assert worker.pull(1, form=Form.DIFFERENCE)[0].form is Form.EXACT
        header, has = worker.pull(0)  # as of one who has had values of another server since
        assert header.form is Form.EXACT
        codec.add(worker.pull(0, form=Form.DIFFERENCE)[1], has.view(1, -1))
        torch.testing.assert_close(has, change)


@pytest.mark.parametrize("name", ["int8", "onebit", "topk", "powersgd", "threshold"])
def test_encoded_contributions_are_summed(name: str) -> None:
    codec, shape = CODECS.load(name)(), SliceShape((600, 400), (60, 20))
    batch = MatrixBatch(codec, of_slice(shape.lengths, shape.widths, codec).shapes)
    expected, frames = torch.zeros(SIZE), []
    for _ in range(2):
        values, frame = torch.randn(SIZE), torch.zeros(batch.frame_bytes, dtype=torch.uint8)
        for matrix, own, total in zip(
            batch.matrices(values), batch.frames(frame), batch.matrices(expected), strict=True
        ):
            assert codec.encode(matrix, own, torch.zeros(codec.memory_values(*matrix.shape)))
            codec.add(own, total)
        frames.append(frame)
    with serving(shapes={0: shape}, codec=codec) as server, closed(server.worker(0)) as worker:
        for clock, frame in enumerate(frames):
            assert worker.push(0, frame, clock, form=Form.ENCODED).kind is MessageKind.HELD
        server.host.order(lambda: server.host.shard.close(closing(1, (0, 0), (0, 1))))
        torch.testing.assert_close(worker.pull(0, at_least=1)[1], expected)


def test_factors_are_multiplied_on_the_server() -> None:
    rows, columns, batch = 6, 50, 3
    errors, inputs, dense = torch.randn(batch, rows), torch.randn(batch, columns), torch.randn(rows * columns)
    with serving(shapes={0: SliceShape((rows * columns,), (columns,))}) as server, closed(server.worker(0)) as worker:
        worker.push(0, torch.cat([errors, inputs], 1), 0, form=Form.FACTORS)
        worker.push(0, dense, 1)
        server.host.order(lambda: server.host.shard.close(closing(1, (0, 0), (0, 1))))
        torch.testing.assert_close(worker.pull(0, at_least=1)[1], (errors.T @ inputs).flatten() + dense)


def test_garbage_from_one_worker_is_refused_and_harms_no_other() -> None:
    chance = random.Random(5)
    with serving() as server, closed(server.worker(1)) as sound:
        for clock in range(40):
            with closed(server.worker(0)) as wild:
                length = chance.choice([0, 1, 100, 4 * SIZE, 4 * SIZE + 1, 2**40])
                header = Header(
                    chance.choice(list(MessageKind)),
                    chance.choice([0, 3, 4, 2**32 - 1]),
                    chance.choice([0, 1, 7]),
                    chance.choice([0, 2**64 - 1]),
                    chance.choice([0, 2**64 - 1]),
                    chance.choice(list(Form)),
                    chance.choice([0, 1, 2**32 - 1]),
                    length=length,
                )
                packed = bytearray(header.pack())
                if clock % 4 == 0:
                    packed[:40] = chance.randbytes(40)
                with contextlib.suppress(ConnectionLost):
                    wild.channel.send(bytes(packed), memoryview(bytes(min(length, 5000))) if length < 5000 else None)
            sound.push(0, ones(), clock)
        server.host.order(lambda: server.host.shard.close(closing(1, *((1, clock) for clock in range(40)))))
        assert sound.pull(0, at_least=1)[1].unique().tolist() == [40.0]
        assert server.host.beat().refused["worker 0"] > 5


def test_a_worker_that_connects_again_takes_the_place_of_its_old_connection() -> None:
    with serving() as server:
        before = server.worker(0)
        before.push(0, ones(), 0)
        with closed(server.worker(0)) as again:
            assert again.push(0, ones(), 0).kind is MessageKind.HELD  # it was held already, and counts once
            server.host.order(lambda: server.host.shard.close(closing(1, (0, 0))))
            assert again.pull(0, at_least=1)[1].unique().tolist() == [1.0]
        with pytest.raises(ConnectionLost):
            before.hear()
        before.channel.close()


def test_of_connections_that_take_a_worker_s_place_at_once_one_has_it_and_the_other_ends() -> None:
    applying, go_on = threading.Event(), threading.Event()

    class Waits(Adds):
        def apply(self, number: int, values: Any, update: SliceUpdate) -> None:
            applying.set()
            assert go_on.wait(WITHIN_S)

    with serving(rule=Waits()) as server:
        server.host.order(lambda: server.host.shard.close(closing(1, (0, 0))))
        before = server.worker(0)
        before.say(MessageKind.PUSH, 0, ones(), clock=0)
        assert applying.wait(WITHIN_S)  # in the thread of the old connection, which so cannot end
        new = [server.worker(0), server.worker(0)]
        for one in new:
            one.say(MessageKind.PUSH, 1, ones(), clock=1)
        with pytest.raises(ConnectionLost):  # somebody wants its place
            [before.hear() for _ in range(2)]
        answered, ended = queue.SimpleQueue[tuple[Worker, int]](), queue.SimpleQueue[Worker]()
        threads = [threading.Thread(target=listen, args=(one, answered, ended)) for one in new]
        for thread in threads:
            thread.start()
        go_on.set()
        gone = ended.get(timeout=WITHIN_S)
        (stays,) = [one for one in new if one is not gone]
        stays.say(MessageKind.PUSH, 1, ones(), clock=2)
        while answered.get(timeout=WITHIN_S) != (stays, 2):
            pass
        for each in [before, *new]:
            each.channel.close()
        for thread in threads:
            thread.join(WITHIN_S)


def listen(one: Worker, answered: queue.SimpleQueue[tuple[Worker, int]], ended: queue.SimpleQueue[Worker]) -> None:
    """Until the connection ends; tells which clocks are answered."""
    with contextlib.suppress(ConnectionLost):
        while True:
            answered.put((one, one.hear()[0].clock))
    ended.put(one)


def test_what_a_rule_raises_ends_the_server_and_is_told() -> None:
    class Broken(Adds):
        def apply(self, number: int, values: Any, update: SliceUpdate) -> None:
            raise ZeroDivisionError("the rule's own")

    shape = SliceShape((SIZE,), (SIZE,))
    broken = Broken()
    slice_store = SliceStore(Forms({0: shape}), {0: torch.zeros(SIZE)}, lambda number: broken)
    host = Host(Shard({0: shape.size_bytes}), slice_store)
    carrier, own = TRANSPORTS.load("tcp")(), Credentials(secrets.token_bytes(32), "now", 0)
    listener = carrier.listen("127.0.0.1", own, host.accepted)
    worker = Worker(0, carrier.connect(listener.address, own, {"worker": 0}, WITHIN_S))
    worker.push(0, ones(), 0)
    host.order(lambda: host.shard.close(closing(1, (0, 0))))
    with pytest.raises(ConnectionLost):
        worker.pull(0, at_least=1)
    with pytest.raises(ZeroDivisionError):
        host.check()
    again = Worker(1, carrier.connect(listener.address, own, {"worker": 1}, WITHIN_S))
    with pytest.raises(ConnectionLost):
        again.push(0, ones(), 0)
    again.channel.close()
    worker.channel.close()
    listener.close()
    host.close()


@contextmanager
def closed(worker: Worker) -> Iterator[Worker]:
    try:
        yield worker
    finally:
        worker.channel.close()
