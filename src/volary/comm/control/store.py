"""The run's board as a torch store: what torch's groups meet at, instead of torch's own TCPStore (open to everyone)."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import msgspec
from torch.distributed import DistStoreError
from torch.distributed.distributed_c10d import Store

from volary.comm.control import board
from volary.comm.control.connection import Connection
from volary.comm.control.errors import ConnectionLost
from volary.errors import VolaryError

ANSWER_S = 10.0  # how long the server may take to answer, beyond what a request itself may wait


class KeyMissing(VolaryError, DistStoreError):
    """Keys that were waited for did not come in time; also torch's error for that."""

    exit_code = 4


class StoreRefused(VolaryError, DistStoreError):
    """The board understood a request but cannot do it; the message is the board's."""


class KeyedStore(Store):
    """A torch store over keyed connections; from many threads at once, each call with a connection to itself.

    connect: opens a connection to the board; called when a call finds no idle one. timeout_s: how long get and wait
    wait unless told otherwise (`set_timeout` changes it). Every call is bounded by its wait and ANSWER_S.
    Raises KeyMissing, ConnectionLost, StoreRefused. A caller that hands it to torch must keep it: torch alone does not.
    """

    def __init__(self, connect: Callable[[], Connection], timeout_s: float = 300.0) -> None:
        super().__init__()
        self.set_timeout(timedelta(seconds=timeout_s))
        self._connect = connect
        self._idle: list[Connection] = []
        self._all: set[Connection] = set()
        self._lock = threading.Lock()
        self._requests = itertools.count(1)
        self._closed = False
        self._later: dict[str, bytes] | None = None  # what is to be written with the next request

    @classmethod
    def at(
        cls, host: str, port: int, key: bytes, attempt_id: str | None = None, timeout_s: float = 300.0
    ) -> KeyedStore:
        """A store at the service "board" of the run's server; connects once to show that it can."""
        store = cls(lambda: Connection.open(host, port, key, "board", {}, attempt_id), timeout_s)
        store._return(store._borrow())
        return store

    @property
    def closed(self) -> bool:
        """Whether it was closed, from whatever thread."""
        return self._closed

    def close(self) -> None:
        """Close all connections; a call that waits in another thread raises ConnectionLost."""
        with self._lock:
            self._closed = True
            connections = [*self._all]
            self._all.clear()
            self._idle.clear()
        for connection in connections:
            connection.close()

    def clone(self) -> KeyedStore:
        """Itself: it may be used from any thread."""
        return self

    @contextmanager
    def writing_later(self) -> Iterator[None]:
        """Within, what is written goes with the next request, or at the end: alone it would take a round trip."""
        self._later = {}
        try:
            yield
        finally:
            last, self._later = self._later, None
        if last:
            self._write(last)

    def set(self, key: str, value: str | bytes) -> None:
        """Write; acknowledged by the server when it returns, unless it is `writing_later`."""
        self._write({key: _bytes(value)})

    def get(self, key: str) -> bytes:
        """The value, once there is one."""
        return self.multi_get([key])[0]

    def add(self, key: str, value: int) -> int:
        """Add to the integer under `key`, atomically; its new value."""
        return int(self._ask(board.Add(self._number(), key, int(value))))

    def wait(self, keys: Sequence[str], timeout: timedelta | None = None) -> None:
        """Return when all keys exist."""
        wait_s = self._wait_s(timeout)
        self._ask(board.Wait(self._number(), list(keys), wait_s), wait_s)

    def check(self, keys: list[str]) -> bool:
        """Whether all keys exist now."""
        return bool(self._ask(board.Check(self._number(), list(keys))))

    def delete_key(self, key: str) -> bool:
        """Delete a key; whether there was one."""
        return bool(self._ask(board.Delete(self._number(), key)))

    def compare_set(self, key: str, expected_value: str | bytes, desired_value: str | bytes) -> bytes:
        """Write `desired_value` if the value is as expected (empty: if there is none); the value after that."""
        ask = board.CompareSet(self._number(), key, _bytes(expected_value), _bytes(desired_value))
        return bytes(self._ask(ask))

    def num_keys(self) -> int:
        return int(self._ask(board.Count(self._number())))

    def append(self, key: str, value: str | bytes) -> None:
        """Put `value` behind what is under `key`."""
        self._ask(board.Append(self._number(), key, _bytes(value)))

    def multi_get(self, keys: list[str]) -> list[bytes]:
        """The values, once all of them exist."""
        wait_s = self._wait_s(None)
        return [bytes(value) for value in self._ask(board.Get(self._number(), list(keys), wait_s), wait_s)]

    def set_then_get(self, key: str, value: str | bytes, keys: Sequence[str]) -> list[bytes]:
        """Write, and return the values of `keys` once all of them exist: in one round trip."""
        wait_s = self._wait_s(None)
        write = board.Set(self._number(), {key: _bytes(value)})
        _, values = self._ask_at_once([write, board.Get(self._number(), list(keys), wait_s)], wait_s)
        return [bytes(one) for one in values]

    def multi_set(self, keys: list[str], values: Sequence[str | bytes]) -> None:
        """Write all of these keys at once; as `set`."""
        self._write(dict(zip(keys, map(_bytes, values), strict=True)))

    def has_extended_api(self) -> bool:
        """Yes: append, multi_get and multi_set are there; gloo then meets in fewer round trips."""
        return True

    # What torch's C++ calls delete_key and num_keys when it holds the store behind a PrefixStore.
    deleteKey = delete_key  # noqa: N815
    getNumKeys = num_keys  # noqa: N815

    def _number(self) -> int:
        return next(self._requests)

    def _wait_s(self, timeout: timedelta | None) -> float:
        store: Any = self  # torch's stub does not know the property
        wait_s = (store.timeout if timeout is None else timeout).total_seconds()
        return min(max(0.0, wait_s), board.WAIT_S)

    def _write(self, values: dict[str, bytes]) -> None:
        with self._lock:
            if self._later is not None:
                self._later.update(values)
                return
        self._ask(board.Set(self._number(), values))

    def _taken(self) -> dict[str, bytes]:
        """Take what was to be written with the next request, which comes now."""
        with self._lock:
            if not self._later:
                return {}
            taken, self._later = self._later, {}
        return taken

    def _ask(self, request: Any, wait_s: float = 0.0) -> Any:
        (value,) = self._ask_at_once([request], wait_s)
        return value

    def _ask_at_once(self, requests: Sequence[Any], wait_s: float) -> list[Any]:
        """Ask for several things without waiting for answers in between. wait_s: for which they may wait themselves."""
        if later := self._taken():
            requests = [board.Set(self._number(), later), *requests]
        connection, values = self._borrow(), list[Any]()
        try:
            for request in requests:
                connection.send(request)
            for _ in requests:
                values.append(self._answer(connection, wait_s))
        except BaseException as problem:  # also a KeyboardInterrupt: the answer that is still to come belongs to nobody
            answered = isinstance(problem, KeyMissing | StoreRefused) and len(values) == len(requests) - 1
            (self._return if answered else self._forget)(connection)
            if isinstance(problem, TimeoutError):
                raise ConnectionLost(f"the run's board has not answered within {wait_s + ANSWER_S:g} s") from None
            raise
        self._return(connection)
        return values[1:] if later else values

    @staticmethod
    def _answer(connection: Connection, wait_s: float) -> Any:
        reply = msgspec.convert(connection.receive(wait_s + ANSWER_S), board.Reply)
        if reply.state == "timeout":
            raise KeyMissing(f"nobody wrote {', '.join(map(repr, reply.value))} within {wait_s:g} s")
        if reply.state == "refused":
            raise StoreRefused(str(reply.value))
        return reply.value

    def _borrow(self) -> Connection:
        with self._lock:
            if self._idle:
                return self._idle.pop()
        connection = self._connect()
        with self._lock:
            if not self._closed:
                self._all.add(connection)
                return connection
        connection.close()
        raise ConnectionLost("the run's store was closed on this side")

    def _return(self, connection: Connection) -> None:
        with self._lock:
            if not self._closed:
                self._idle.append(connection)

    def _forget(self, connection: Connection) -> None:
        with self._lock:
            self._all.discard(connection)
        connection.close()


def set_then_get(store: Store, key: str, value: str | bytes, keys: Sequence[str]) -> list[bytes]:
    """Write to any store, and return the values of `keys` once all of them exist; in one round trip if it can."""
    if isinstance(store, KeyedStore):
        return store.set_then_get(key, value, keys)
    store.set(key, _bytes(value).decode())  # torch declares text here
    return store.multi_get(list(keys))


def _bytes(value: str | bytes) -> bytes:
    return value.encode() if isinstance(value, str) else bytes(value)
