"""One server process of a store: keeps slices as the register says, and serves workers; ends with its register."""

from __future__ import annotations

from contextlib import closing
from typing import Any

import torch

from volary.comm.channels.channel import Credentials
from volary.comm.control.connection import Connection
from volary.comm.control.errors import ConnectionLost
from volary.comm.memory.shared_memory import available_bytes
from volary.comm.transports.auto import AutoTransport
from volary.errors import BadInput
from volary.server.shard_rule import AllOf, EachAlone
from volary.server.shards.forms import Forms, SliceShape
from volary.server.shards.host import Host
from volary.server.shards.shard import Shard
from volary.server.shards.slice_store import SliceStore
from volary.store.messages import Added, AddSlices, Drop, Failed, Ready, ToServer, decoded
from volary.store.settings import Settings
from volary.store.updater import SliceRule, named

LOOK_S = 0.2  # how soon a failure of another thread is seen
MOST_BYTES = 2**40  # of a slice


def run(settings: Settings, connection: Connection, host: str, own: Credentials) -> None:
    """Listen on `host`, and serve until the register has gone.

    A failure of our own or of the user's updater is sent to it, and raised.
    """
    torch.set_num_threads(1)  # as many threads as there are connections work at once
    try:
        with closing(_Keeper(settings)) as keeper:
            listener = AutoTransport().listen(host, own, keeper.host.accepted)
            with closing(listener):
                connection.send(Ready(listener.address[1]))
                _follow(connection, keeper)
    except ConnectionLost:
        return
    except BaseException as error:
        connection.send(Failed(str(error) or type(error).__name__, isinstance(error, BadInput)))
        raise


def _follow(connection: Connection, keeper: _Keeper) -> None:
    while True:
        try:
            message = decoded(connection.receive(LOOK_S), ToServer)
        except TimeoutError:
            keeper.host.check()
            continue
        if isinstance(message, AddSlices):
            connection.send(Added(message.serial, keeper.add(message)))
        elif isinstance(message, Drop):
            keeper.drop(message.numbers)


class _Keeper:
    """The slices of this process."""

    def __init__(self, settings: Settings) -> None:
        self._updater = named({"name": settings.updater} | settings.arguments)
        self._whole = settings.whole
        self._shapes: dict[int, SliceShape] = {}
        self._rules: dict[int, SliceRule] = {}
        shard = Shard({}, local=EachAlone() if settings.mode == "async" else AllOf(settings.workers))
        slice_store = SliceStore(Forms(self._shapes), {}, self._rules.__getitem__, memory=AutoTransport().memory)
        self.host = Host(shard, slice_store, most_bytes=MOST_BYTES)

    def add(self, order: AddSlices) -> str:
        """Expect first values; returns why not, if so."""
        dtype = getattr(torch, order.kind.dtype)
        needed, available = sum(one.end - one.start for one in order.cuts) * dtype.itemsize, available_bytes()
        if needed > available:
            return f"key {order.key!r} needs {needed:,} bytes on a server that has {available:,}"
        try:
            self._updater.check(order.key, dtype)
        except BadInput as problem:
            return str(problem)
        for one in order.cuts:
            size = one.end - one.start
            self._shapes[one.number] = SliceShape((size,), (size,), dtype)
            shape = tuple(order.kind.shape) if self._whole else (size,)
            self._rules[one.number] = SliceRule(self._updater, order.key, shape)
        return ""

    def drop(self, numbers: list[int]) -> None:
        def step() -> list[Any]:
            for number in numbers:
                self.host.shard.drop(number)
                self.host.slice_store.drop(number)
                self._rules.pop(number, None)
            return []

        self.host.decide(step)

    def close(self) -> None:
        self.host.close()
