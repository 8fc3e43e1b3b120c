"""The servers of a run, as its roster knows them: which are here, and who keeps which shard."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field

from volary.server.protocol.to_members import View


@dataclass
class ServerReplica:
    """A server that is connected. unreachable_by: ranks of workers that cannot connect to it."""

    number: int
    peer: int
    address: tuple[str, int]
    seen_at: float
    applied: int = 0
    unreachable_by: set[int] = field(default_factory=set)


class Replicas:
    """The servers of a run: of `servers`, server n keeps shard n and, with two copies, also the shard before it.

    give_up_after_s: without a heartbeat, after which a server is lost.
    """

    def __init__(self, servers: int, copies: int, give_up_after_s: float) -> None:
        self._servers, self._copies, self._give_up_after_s = servers, copies, give_up_after_s
        self._at: dict[int, ServerReplica] = {}
        self._used: set[int] = set()
        self._views = 0

    @property
    def awaited(self) -> list[int]:
        """Servers that have never connected yet."""
        return [number for number in range(self._servers) if number not in self._used]

    def __iter__(self) -> Iterator[ServerReplica]:
        return iter(list(self._at.values()))

    def __len__(self) -> int:
        return len(self._at)

    def add(self, peer: int, number: int, address: tuple[str, int], now: float) -> bool:
        """A server takes its place; False if there is no such place, or it was taken before."""
        if number in self._used or number >= self._servers:
            return False
        self._used.add(number)
        self._at[peer] = ServerReplica(number, peer, address, now)
        return True

    def at(self, peer: int) -> ServerReplica | None:
        """The server behind a connection."""
        return self._at.get(peer)

    def of(self, number: int) -> ServerReplica | None:
        """The server of this number, if it is here."""
        return next((server for server in self._at.values() if server.number == number), None)

    def gone(self, peer: int) -> None:
        """Note that a server is gone, for ever."""
        self._at.pop(peer, None)

    def silent(self, now: float) -> list[ServerReplica]:
        """The servers that have been silent for too long."""
        return [server for server in self if now - server.seen_at > self._give_up_after_s]

    def keepers(self, shard: int) -> list[int]:
        """The servers that keep a shard, the first of which is asked."""
        here = {server.number for server in self._at.values()}
        places = [(shard + copy) % self._servers for copy in range(self._copies)]
        return [number for number in places if number in here]

    @property
    def orphans(self) -> list[int]:
        """Shards that no connected server keeps."""
        return [shard for shard in range(self._servers) if not self.keepers(shard)]

    def view(self) -> View:
        """Make a view of who serves now; each is newer than the one before."""
        self._views += 1
        shards = [self.keepers(shard) for shard in range(self._servers)]
        return View(self._views, shards, {server.number: server.address for server in self._at.values()})

    def duties(self, shards: Iterable[int]) -> dict[int, list[int]]:
        """The shards, of these, that each server is responsible for."""
        found: dict[int, list[int]] = {}
        for shard in shards:
            for number in self.keepers(shard)[:1]:
                found.setdefault(number, []).append(shard)
        return found

    @property
    def shards(self) -> Collection[int]:
        """The numbers of all shards."""
        return range(self._servers)
