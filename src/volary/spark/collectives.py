"""Collectives for tasks of a barrier stage of one's own, after Harp (Zhang et al., 2015): the driver makes one
`TaskGroup`, the tasks join it, and then send each other arrays without Spark.

Arrays go straight to the task that is to have them, over connections that need the key which the group was made with.
Sums are added up in the order of tasks, so that all tasks have the same, bit for bit, each time.
"""

from __future__ import annotations

import json
import secrets
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from hashlib import sha256
from importlib import import_module
from typing import Any

import numpy as np
from numpy.typing import NDArray

from volary.comm.control.connection import Connection
from volary.comm.control.errors import ConnectionLost
from volary.comm.control.server import KeyedServer
from volary.comm.control.service import Replies
from volary.errors import BadInput

_SERVICE = "tasks"
_PIECE_BYTES = 8 << 20  # a message has a limit
_WAIT_S = 600.0  # for what another task sends, which may compute first
Array = NDArray[Any]


class _Mailbox:
    """The messages of other tasks, by sender and number, as a service of a keyed server."""

    def __init__(self) -> None:
        self._pieces: dict[tuple[int, int], list[bytes]] = {}
        self._whole: dict[tuple[int, int], Array] = {}
        self._changed = threading.Condition()

    def opened(self, peer: int, hello: dict[str, Any], now: float) -> Replies:
        return ()

    def received(self, peer: int, message: Any, now: float) -> Replies:
        at = message["from"], message["number"]
        with self._changed:
            pieces = self._pieces.setdefault(at, [])
            pieces.append(message["bytes"])
            if message["last"]:
                array = np.frombuffer(b"".join(self._pieces.pop(at)), dtype=message["dtype"])
                self._whole[at] = array.reshape(message["shape"]).copy()
                self._changed.notify_all()
        return ()

    def closed(self, peer: int, now: float) -> Replies:
        return ()

    def tick(self, now: float) -> Replies:
        return ()

    def take(self, sender: int, number: int) -> Array:
        """Wait for an array and take it. Raises ConnectionLost if it does not come."""
        with self._changed:
            if not self._changed.wait_for(lambda: (sender, number) in self._whole, _WAIT_S):
                raise ConnectionLost(f"task {sender} has sent nothing for {_WAIT_S:g} s")
            return self._whole.pop((sender, number))


@dataclass(frozen=True)
class TaskGroup:
    """The tasks of one barrier stage: made by the driver, and used by the function that they run."""

    key: bytes = field(default_factory=lambda: secrets.token_bytes(32), repr=False)

    @contextmanager
    def joined(self, context: Any = None) -> Iterator[Team]:
        """Meet the other tasks, which all must call it; then they can send to each other until all have left.

        context: the task's, a BarrierTaskContext; default: it is asked for.
        """
        task = context or import_module("pyspark").BarrierTaskContext.get()
        hosts = [info.address.rpartition(":")[0] for info in task.getTaskInfos()]
        rank, mailbox = task.partitionId(), _Mailbox()
        host = hosts[rank] if len(set(hosts)) > 1 else "127.0.0.1"
        with KeyedServer(self.key, {_SERVICE: mailbox}, host) as server:
            where = [json.loads(words) for words in task.allGather(json.dumps(server.address))]
            team = Team(rank, len(where), mailbox, [(str(one), int(port)) for one, port in where], self.key)
            try:
                yield team
                task.barrier()  # others may still send
            finally:
                team._close()


class Team:
    """The collectives of a task and all others. All tasks call the same things in the same order.

    rank, size: the task's number, and how many there are. Arrays are NumPy's, of any type that has no objects.
    """

    def __init__(self, rank: int, size: int, mailbox: _Mailbox, where: Sequence[tuple[str, int]], key: bytes) -> None:
        self.rank, self.size = rank, size
        self._mailbox, self._where, self._key = mailbox, where, key
        self._connections: dict[int, Connection] = {}
        self._calls = 0

    def broadcast(self, array: Array | None, root: int = 0) -> Array:
        """The root's array, on every task. array: the root's; of others it does not count."""
        self._calls += 1
        if self.rank != root:
            return self._mailbox.take(root, self._calls)
        given = np.asarray(array)
        self._send_each([given if other != root else None for other in range(self.size)])
        return given

    def all_gather(self, array: Array) -> list[Array]:
        """The arrays of all tasks, by their numbers; they may differ in shape."""
        return self.exchange([array] * self.size)

    def all_reduce(self, array: Array) -> Array:
        """The sum of the arrays of all tasks, of one shape and type. Each task adds up a slice of them.

        Raises BadInput if they differ.
        """
        flat = np.ascontiguousarray(array).reshape(-1)
        slices = self.exchange(np.array_split(flat, self.size))
        if any(one.dtype != flat.dtype or one.shape != slices[0].shape for one in slices):
            raise BadInput("arrays differ in size or type between tasks; accepted: the same on all")
        mine = slices[0].copy()
        for other in slices[1:]:
            mine += other
        return np.concatenate(self.all_gather(mine)).reshape(np.shape(array))

    def rotate(self, array: Array, by: int = 1) -> Array:
        """The array of the task `by` before this one: after `size` calls a partition of a model has been everywhere."""
        self._calls += 1
        to, sender = (self.rank + by) % self.size, (self.rank - by) % self.size
        if to == self.rank:
            return array
        self._send_each([array if other == to else None for other in range(self.size)])
        return self._mailbox.take(sender, self._calls)

    def exchange(self, arrays: Sequence[Array]) -> list[Array]:
        """Send the array at place i to task i; return what all have sent to this one, by their numbers.

        Raises BadInput unless there is one for each task.
        """
        if len(arrays) != self.size:
            raise BadInput(f"{len(arrays)} arrays for {self.size} tasks; accepted: one for each")
        self._calls += 1
        self._send_each([one if other != self.rank else None for other, one in enumerate(arrays)])
        return [
            np.asarray(arrays[other]) if other == self.rank else self._mailbox.take(other, self._calls)
            for other in range(self.size)
        ]

    def regroup(self, table: Mapping[str, Array]) -> dict[str, Array]:
        """The keys that are this task's, each with the sum of what all tasks have for it; a key is of one task."""
        owned: list[dict[str, Array]] = [{} for _ in range(self.size)]
        for name in sorted(table):
            owned[owner_of(name, self.size)][name] = np.asarray(table[name])
        found: dict[str, Array] = {}
        names = self.exchange([np.frombuffer(json.dumps(list(one)).encode(), np.uint8) for one in owned])
        keys = [json.loads(one.tobytes()) for one in names]
        for place in range(max(self._most(owned, keys))):
            given = [list(one.values())[place] if place < len(one) else np.empty(0) for one in owned]
            for sender, array in enumerate(self.exchange(given)):
                if place < len(keys[sender]):
                    name = keys[sender][place]
                    found[name] = found[name] + array if name in found else array
        return found

    def _most(self, owned: Sequence[Mapping[str, Array]], keys: Sequence[Sequence[str]]) -> list[int]:
        """The most keys that any task has sent to any other: so often all of them exchange."""
        mine = max(*(len(one) for one in owned), *(len(one) for one in keys))
        return [int(one[0]) for one in self.all_gather(np.array([mine]))]

    def _send_each(self, arrays: Sequence[Array | None]) -> None:
        for other, array in enumerate(arrays):
            if array is not None:
                self._send(other, np.ascontiguousarray(array))

    def _send(self, other: int, array: Array) -> None:
        if other not in self._connections:
            host, port = self._where[other]
            self._connections[other] = Connection.open(host, port, self._key, _SERVICE, {})
        content, about = array.tobytes(), {"from": self.rank, "number": self._calls}
        pieces = [content[first : first + _PIECE_BYTES] for first in range(0, len(content), _PIECE_BYTES)] or [b""]
        for place, piece in enumerate(pieces):
            last = place == len(pieces) - 1
            like = {"dtype": str(array.dtype), "shape": list(array.shape)} if last else {}
            self._connections[other].send({**about, **like, "bytes": piece, "last": last})

    def _close(self) -> None:
        for connection in self._connections.values():
            connection.close()


def owner_of(name: str, size: int) -> int:
    """The task that a key is of, the same everywhere."""
    return int.from_bytes(sha256(name.encode()).digest()[:8], "big") % size
