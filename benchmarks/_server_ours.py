"""Our parameter server as a side of _server_ranks.py: host, shard and slices at the server, a link at each worker."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from volary.bench.meeting import BenchRanks
from volary.comm.channels.channel import Channel, Credentials
from volary.comm.control.sealing import Security
from volary.comm.transports import ROOM
from volary.comm.transports._base import Transport
from volary.server.client.client import Client, Installed
from volary.server.client.link import Link, LinkEvent
from volary.server.client.values import PlainMemory
from volary.server.protocol.slices import Slice
from volary.server.protocol.to_members import View
from volary.server.shard_rule import EachAlone
from volary.server.shards.forms import Forms, SliceShape
from volary.server.shards.host import Host
from volary.server.shards.shard import Shard
from volary.server.shards.slice_store import SliceStore
from volary.server.update_rule import SliceUpdate
from volary.sharding.ranges import Range

SERVER = 0
LIFE = "measured"
VALUE_BYTES = 4
CONNECT_S = 20.0


class Add:
    """A rule: what is pushed is added."""

    changes_sums = False

    def apply(self, number: int, values: Sequence[Tensor], update: SliceUpdate) -> None:
        for part, pushed in zip(values, update.sums, strict=True):
            if pushed is not None:
                part.add_(pushed, alpha=update.scale)

    def state(self, number: int) -> None:
        return None

    def restore(self, number: int, state: None) -> None:
        return None


@dataclass(frozen=True)
class Setup:
    """A measurement: so many values in slices of so many, over a transport."""

    size: int
    slice_size: int
    transport: Literal["tcp", "shared"]
    security: Security

    @property
    def slices(self) -> list[Slice]:
        """All of one shard."""
        starts = range(0, self.size, self.slice_size)
        return [
            Slice(n, 0, n, (Range("values", at, min(at + self.slice_size, self.size)),)) for n, at in enumerate(starts)
        ]


class Server:
    """Each push is an update of its own."""

    def __init__(self, ranks: BenchRanks, address: str, setup: Setup) -> None:
        sizes = {one.number: one.size for one in setup.slices}
        forms = Forms({number: SliceShape((count,), (count,)) for number, count in sizes.items()})
        way: Transport = ROOM.load(setup.transport)()
        values = {number: torch.zeros(count) for number, count in sizes.items()}
        self.slice_store = SliceStore(
            forms, values, lambda number: Add(), memory=None if setup.transport == "tcp" else way.memory
        )
        shard = Shard({number: VALUE_BYTES * count for number, count in sizes.items()}, local=EachAlone())
        self.host = Host(shard, self.slice_store)
        self.workers = ranks.world_size - 1
        key = torch.randint(256, (32,), dtype=torch.uint8).numpy().tobytes()
        self.door = way.listen(address, Credentials(key, LIFE, SERVER, setup.security), self.host.accepted)
        ranks.group().bulletin.share("where", [self.door.address, key.hex()])

    def turn(self) -> None:
        """Its threads work by themselves."""
        self.host.check()

    def check(self, rounds: int) -> None:
        """Raise RuntimeError unless all pushes are in."""
        for number in self.slice_store.numbers:
            reading = self.slice_store.read(number)
            if not bool((reading.tensor == rounds * self.workers).all()):
                raise RuntimeError(f"ours: the server has {reading.tensor} after {rounds} rounds")
            reading.close()

    def close(self) -> None:
        """End it."""
        self.door.close()
        self.host.close()


class Worker:
    """Pushes ones, and pulls what has at least one more update than what it has."""

    def __init__(self, ranks: BenchRanks, setup: Setup) -> None:
        self.rank, self.workers = ranks.rank, ranks.world_size - 1
        self.slices, self.clock, self.left = setup.slices, -1, 0
        self.values = torch.zeros(setup.size)
        self.places = [PlainMemory(self.part(self.values, one).numpy().data.cast("B")) for one in self.slices]
        way: Transport = ROOM.load(setup.transport)()
        self.pushed = torch.frombuffer(way.memory(VALUE_BYTES * setup.size), dtype=torch.float32).fill_(1)
        self.payloads = [PlainMemory(self.part(self.pushed, one).numpy().data.cast("B")) for one in self.slices]
        (host, port), key = ranks.group().bulletin.share("where", None)[SERVER]

        def connect(server: int, address: tuple[str, int]) -> Channel:
            wanted = Credentials(bytes.fromhex(key), LIFE, server, setup.security)
            return way.connect(address, wanted, {"worker": self.rank}, CONNECT_S)

        self.client = Client(self.slices, self.rank)
        self.link = Link(self.client, connect, unreachable=lambda server: None)
        self.link.start(self.happened, {one.number: one.number for one in self.slices})
        self.link.view(View(1, [[SERVER]], {SERVER: (host, port)}))

    def turn(self) -> None:
        """One round."""
        self.clock += 1
        self.left = len(self.slices)
        for one in self.slices:
            version = max(0, self.client.version(one.number))
            self.link.push(one.number, self.clock, version, self.payloads[one.number])
            self.link.pull(one.number, version + 1, self.places[one.number])
        self.link.wait_for(lambda: not self.left and self.link.is_free(self.clock), lambda: "a round")

    def check(self, rounds: int) -> None:
        """Raise RuntimeError unless values have updates enough, and none that nobody made."""
        low, high = float(self.values.min()), float(self.values.max())
        if not rounds <= low <= high <= rounds * self.workers:
            raise RuntimeError(f"ours: pulled {low:g} to {high:g} after {rounds} rounds")

    def close(self) -> None:
        """End it."""
        self.link.close()

    def happened(self, event: LinkEvent) -> None:
        """Count what has come."""
        if isinstance(event, Installed) and not self.client.pulling(event.slice):
            self.left -= 1

    @staticmethod
    def part(tensor: Tensor, one: Slice) -> Tensor:
        """The part of a slice."""
        return tensor[one.parts[0].start : one.parts[0].end]


def side(ranks: BenchRanks, address: str, setup: Setup) -> Server | Worker:
    """This rank's part."""
    return Server(ranks, address, setup) if ranks.rank == SERVER else Worker(ranks, setup)
