"""Parameter servers as a user would sketch them, the peers of _server_transports.py: 4 MB chunks, one thread a worker.

The server adds each pushed chunk to its parameters, under a lock of the chunk's, and sends the chunk back, which nobody
may change meanwhile: under the same lock, or a copy where sending goes on behind the call.
"""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Callable

import numpy as np
import torch
import zmq
from torch import Tensor, distributed

from volary.bench.meeting import BenchRanks

CHUNK = 1_000_000  # values
ZMQ_WINDOW = 4  # chunks in flight; gloo and sockets have all
SERVER = 0


class Sketch:
    """Memory of every sketch: parameters at the server; at workers pushed values (ones) and room for pulled ones."""

    def __init__(self, ranks: BenchRanks, address: str, size: int) -> None:
        self.ranks, self.address = ranks, address
        self.values = torch.zeros(size)
        self.pushed = torch.ones(size)
        self.chunks = [slice(at, at + CHUNK) for at in range(0, size, CHUNK)]
        self.locks = [threading.Lock() for _ in self.chunks]
        self.workers = range(1, ranks.world_size)

    def turn(self) -> None:
        """One round: push all, pull all."""
        if self.ranks.rank != SERVER:
            self.round_trip()
            return
        threads = [threading.Thread(target=self.serve, args=(worker,)) for worker in self.workers]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def added(self, number: int, pushed: Tensor) -> Tensor:
        """A copy of the chunk, with what was pushed, where that lies."""
        with self.locks[number]:
            return pushed.copy_(self.values[self.chunks[number]].add_(pushed))

    def met(self, port: int | None) -> tuple[str, int]:
        """Where the server listens, told to all; it says its port."""
        host, found = self.ranks.group().bulletin.share("where", [self.address, port])[SERVER]
        return host, found

    def check(self, rounds: int) -> None:
        """Raise RuntimeError unless values have all own pushes, and none that nobody made."""
        low, high = float(self.values.min()), float(self.values.max())
        if self.ranks.rank != SERVER and not rounds <= low <= high <= rounds * len(self.workers):
            raise RuntimeError(f"{type(self).__name__}: pulled {low:g} to {high:g} after {rounds} rounds")
        if self.ranks.rank == SERVER and not low == high == rounds * len(self.workers):
            raise RuntimeError(f"{type(self).__name__}: the server has {low:g} to {high:g} after {rounds} rounds")

    def serve(self, worker: int) -> None:
        raise NotImplementedError

    def round_trip(self) -> None:
        raise NotImplementedError

    def close(self) -> None:
        """Let go of what it has."""


class Sockets(Sketch):
    """Plain sockets: the server receives into one buffer a worker, the worker sends in a thread."""

    def __init__(self, ranks: BenchRanks, address: str, size: int) -> None:
        super().__init__(ranks, address, size)
        if ranks.rank == SERVER:
            with socket.create_server((address, 0)) as door:
                self.met(door.getsockname()[1])
                self.plugs = [door.accept()[0] for _ in self.workers]
            self.buffers = [torch.empty(CHUNK) for _ in self.workers]
        else:
            self.plugs = [socket.create_connection(self.met(None))]

    def serve(self, worker: int) -> None:
        plug, buffer = self.plugs[worker - 1], self.buffers[worker - 1]
        for number, chunk in enumerate(self.chunks):
            pushed = buffer[: len(self.values[chunk])]
            fill(plug, pushed)
            with self.locks[number]:
                plug.sendall(self.values[chunk].add_(pushed).numpy().data)

    def round_trip(self) -> None:
        sender = threading.Thread(target=self.plugs[0].sendall, args=(self.pushed.numpy().data.cast("B"),))
        sender.start()
        fill(self.plugs[0], self.values)
        sender.join()

    def close(self) -> None:
        for plug in self.plugs:
            plug.close()


def fill(plug: socket.socket, tensor: Tensor) -> None:
    view, at = tensor.numpy().data.cast("B"), 0
    while at < len(view):
        got = plug.recv_into(view[at:])
        if not got:
            raise ConnectionError("closed")
        at += got


def _begun(work: distributed.Work | None) -> distributed.Work:
    """Torch returns None to ranks that are not in the group; all are here."""
    assert work is not None
    return work


class Gloo(Sketch):
    """torch's send and receive, one receive at a time, two buffers a worker."""

    COUNT: int | None = 2

    def __init__(self, ranks: BenchRanks, address: str, size: int) -> None:
        super().__init__(ranks, address, size)
        workers = self.workers if ranks.rank == SERVER else ()
        self.buffers = {worker: [torch.empty(CHUNK) for _ in self.chunks[: self.COUNT]] for worker in workers}

    def serve(self, worker: int) -> None:
        buffers, sending = self.buffers[worker], None
        for number, chunk in enumerate(self.chunks):
            pushed = buffers[number % 2][: len(self.values[chunk])]
            distributed.recv(pushed, worker, tag=1)
            part = self.added(number, pushed)
            if sending is not None:
                sending.wait()
            sending = _begun(distributed.isend(part, worker, tag=2))
        assert sending is not None
        sending.wait()

    def round_trip(self) -> None:
        receiving = [_begun(distributed.irecv(self.values[chunk], SERVER, tag=2)) for chunk in self.chunks]
        sending = [_begun(distributed.isend(self.pushed[chunk], SERVER, tag=1)) for chunk in self.chunks]
        for work in [*receiving, *sending]:
            work.wait()


class GlooAhead(Gloo):
    """The same, every receive of a round posted before the first is used."""

    COUNT = None

    def serve(self, worker: int) -> None:
        buffers = [
            buffer[: len(self.values[chunk])] for buffer, chunk in zip(self.buffers[worker], self.chunks, strict=True)
        ]
        coming, sending = [_begun(distributed.irecv(buffer, worker, tag=1)) for buffer in buffers], []
        for number, (buffer, arrival) in enumerate(zip(buffers, coming, strict=True)):
            arrival.wait()
            sending.append(_begun(distributed.isend(self.added(number, buffer), worker, tag=2)))
        for work in sending:
            work.wait()


class Zmq(Sketch):
    """ZeroMQ over TCP, a ROUTER and DEALERs, without copies of its own."""

    def __init__(self, ranks: BenchRanks, address: str, size: int) -> None:
        super().__init__(ranks, address, size)
        self.context = zmq.Context(1)
        if ranks.rank == SERVER:
            self.plug = self.context.socket(zmq.ROUTER)
            self.met(self.plug.bind_to_random_port(f"tcp://{address}"))
        else:
            self.plug = self.context.socket(zmq.DEALER)
            host, port = self.met(None)
            self.plug.connect(f"tcp://{host}:{port}")

    def turn(self) -> None:
        if self.ranks.rank != SERVER:
            self.round_trip()
            return
        for _ in range(len(self.workers) * len(self.chunks)):
            who, which, data = self.plug.recv_multipart(copy=False)
            number = struct.unpack("<q", which.bytes)[0]
            part = self.values[self.chunks[number]].numpy()
            part += np.frombuffer(data.buffer, np.float32)
            self.plug.send_multipart([who, which, part.copy().data], copy=False)

    def round_trip(self) -> None:
        sent = 0
        for got in range(len(self.chunks)):
            while sent < len(self.chunks) and sent - got < ZMQ_WINDOW:
                self.plug.send_multipart(
                    [struct.pack("<q", sent), self.pushed[self.chunks[sent]].numpy().data], copy=False
                )
                sent += 1
            which, data = self.plug.recv_multipart(copy=False)
            chunk = self.chunks[struct.unpack("<q", which.bytes)[0]]
            self.values[chunk].numpy()[:] = np.frombuffer(data.buffer, np.float32)

    def close(self) -> None:
        self.plug.close(linger=0)
        self.context.term()


SKETCHES: dict[str, Callable[[BenchRanks, str, int], Sketch]] = {
    "sockets": Sockets,
    "gloo": Gloo,
    "gloo-ahead": GlooAhead,
    "zmq": Zmq,
}
