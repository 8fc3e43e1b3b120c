"""gloo's addresses where some ranks are reached through a gate alone: who of two connects is decided by what they see.

Of two ranks gloo has the one with the greater address connect to the other. So a rank behind a gate, which listens at a
virtual address on its own loopback (see `volary.comm.relay`), sees others at a port of 127.0.0.1 that leads to them;
these see it at an address beyond all, to which they never connect. Of two such ranks the greater one connects.
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any

from torch.distributed.distributed_c10d import Store

from volary.comm.relay import forwarder
from volary.comm.relay.messages import End, is_virtual
from volary.errors import SettingError

READ_AT_ONCE = 64  # ranks' values in one message
_BEYOND = "255.255.255.254"


def seen_from_here(ends: Sequence[End], own: str) -> dict[End, End]:
    """Listening ends of ranks that this rank, whose address is `own`, is to see elsewhere, and where.

    Raises SettingError if they are no IPv4 addresses, which gloo has in the same order everywhere.
    """
    through = forwarder.own()
    if through is None:
        return {(host, port): (_BEYOND, port) for host, port in ends if is_virtual(host)}
    if six := next((host for host, _ in ends if ":" in host), ""):
        raise SettingError(
            f"another worker is at {six}; accepted with workers that come through a gate: IPv4 addresses"
        )
    mine = socket.inet_aton(own)
    others = [(host, port) for host, port in ends if host != own]
    return {
        (host, port): through.to((host, port))
        for host, port in others
        if not is_virtual(host) or socket.inet_aton(host) < mine
    }


class GlooStore(Store):
    """torch's store `store`, in whose values gloo reads `ends` as they are seen from here.

    gloo waits for the key of each of `size` ranks, of which this is one, and then reads it, one after the other. The
    board may be far: under a topic where this rank has written its own, all are read with the first. Nobody changes a
    value that is read so.
    """

    def __init__(self, store: Store, ends: Mapping[End, End], rank: int, size: int) -> None:
        super().__init__()
        self._rank, self._size = rank, size
        self._written: dict[str, set[str]] = {}  # by this rank: of each topic the last parts of keys
        self._store: Any = store  # torch's stub has half of what a store does
        self._seen = {_bytes(end): _bytes(there) for end, there in ends.items()}
        self._awaited: dict[str, bytes] = {}

    def set(self, key: str, value: str | bytes) -> None:
        self._note(key)
        self._store.set(key, value)

    def get(self, key: str) -> bytes:
        value = self._awaited.pop(key, None)
        return self._as_seen(self._store.get(key) if value is None else value)

    def add(self, key: str, value: int) -> int:
        return int(self._store.add(key, value))

    def check(self, keys: list[str]) -> bool:
        return bool(self._store.check(keys))

    def wait(self, keys: list[str], timeout: timedelta | None = None) -> None:
        if timeout is not None:
            self._store.set_timeout(timeout)
        if not self._awaited.keys() >= set(keys):
            every = list(dict.fromkeys(one for key in keys for one in self._of_all_ranks(key)))
            for start in range(0, len(every), READ_AT_ONCE):
                some = every[start : start + READ_AT_ONCE]
                self._awaited.update(zip(some, self._store.multi_get(some), strict=True))

    def _note(self, key: str) -> None:
        topic, _, last = key.rpartition("/")
        self._written.setdefault(topic, set()).add(last)

    def _of_all_ranks(self, key: str) -> list[str]:
        """The key, and those of other ranks if each writes one under its topic."""
        topic = key.rpartition("/")[0]
        if self._written.get(topic) != {str(self._rank)}:
            return [key]
        return [f"{topic}/{rank}" for rank in range(self._size)]

    def append(self, key: str, value: str | bytes) -> None:
        self._store.append(key, value)

    def multi_get(self, keys: list[str]) -> list[bytes]:
        return [self._as_seen(value) for value in self._store.multi_get(keys)]

    def multi_set(self, keys: list[str], values: Sequence[str | bytes]) -> None:
        for key in keys:
            self._note(key)
        self._store.multi_set(keys, values)

    def has_extended_api(self) -> bool:
        return bool(self._store.has_extended_api())

    def clone(self) -> GlooStore:
        """Itself: it may be used from any thread, as what it reads from may."""
        return self

    def _as_seen(self, value: bytes) -> bytes:
        for end, there in self._seen.items():
            value = value.replace(end, there)
        return value


def _bytes(end: End) -> bytes:
    """An end as gloo's addresses have it: the beginning of C's sockaddr_in."""
    return struct.pack("=H", socket.AF_INET) + struct.pack(">H", end[1]) + socket.inet_aton(end[0])
