"""A key-value store at which the workers of a run meet. A plain state machine: the server moves its bytes."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import msgspec
from msgspec import Struct

from volary.comm.control.errors import BadMessage
from volary.comm.control.service import Replies

LIMIT_BYTES = 256 * 2**20
WAIT_S = 86400.0  # the longest wait that is accepted
_ENTRY_BYTES = 128  # what an entry costs beside its key and value, so that empty ones are not free
_INT64 = range(-(2**63), 2**63)
_INT64_DIGITS = 20
_WAITERS = 2**16


class _Request(Struct, frozen=True, forbid_unknown_fields=True, tag_field="op", tag=str.lower):
    request: int  # chosen by the client; comes back in the reply


class Set(_Request, frozen=True):
    """Write all of `values`. Reply: None."""

    values: dict[str, bytes]


class Get(_Request, frozen=True):
    """Wait until all `keys` exist, at most `wait_s`. Reply: their values, in order."""

    keys: list[str]
    wait_s: float


class Wait(_Request, frozen=True):
    """Wait as Get does, without the values. Reply: None."""

    keys: list[str]
    wait_s: float


class Add(_Request, frozen=True):
    """Add to the integer under `key` (0 if there is none; kept as decimal text, as in torch's stores). Reply: sum."""

    key: str
    amount: int


class Append(_Request, frozen=True):
    """Put `value` behind what is under `key`. Reply: None."""

    key: str
    value: bytes


class CompareSet(_Request, frozen=True):
    """Write `desired` if the value is `expected`, or if there is none and `expected` is empty.

    Reply: the value under the key afterwards; `expected` where there is none.
    """

    key: str
    expected: bytes
    desired: bytes


class Check(_Request, frozen=True):
    """Reply: whether all `keys` exist."""

    keys: list[str]


class Delete(_Request, frozen=True):
    """Reply: whether there was such a key."""

    key: str


class Count(_Request, frozen=True):
    """Reply: how many keys there are."""


Request: TypeAlias = Set | Get | Wait | Add | Append | CompareSet | Check | Delete | Count


class Reply(Struct, frozen=True):
    """The answer to one request. state: "ok"; "timeout" (value: the keys that are missing); "refused" (value: why)."""

    request: int
    state: str
    value: Any


@dataclass(eq=False)
class _Waiter:
    peer: int
    ask: Get | Wait
    deadline: float
    missing: set[str] = field(default_factory=set)


class _Refused(Exception):
    """A request that is understood but cannot be done; its sentence goes to the client."""


class Board:
    """Keys and values of one run, at most `limit_bytes` of them together; and who waits for which key."""

    def __init__(self, limit_bytes: int = LIMIT_BYTES) -> None:
        self.total_bytes = 0
        self._limit_bytes = limit_bytes
        self._values: dict[str, bytes] = {}
        self._waiters: list[_Waiter] = []

    def opened(self, peer: int, hello: dict[str, Any], now: float) -> Replies:
        """Accept the client: nothing is asked of it beyond the key."""
        return ()

    def closed(self, peer: int, now: float) -> Replies:
        """Keep what the client wrote; forget what it waited for."""
        self._waiters = [w for w in self._waiters if w.peer != peer]
        return ()

    def tick(self, now: float) -> Replies:
        """Answer the requests whose time is over."""
        late = [w for w in self._waiters if now >= w.deadline]
        if late:
            self._waiters = [w for w in self._waiters if now < w.deadline]
        return [(w.peer, Reply(w.ask.request, "timeout", sorted(self._missing(w)))) for w in late]

    def received(self, peer: int, message: Any, now: float) -> Replies:
        """Do one Request. Replies to others follow where a key that they wait for appeared.

        Raises BadMessage if it is none.
        """
        try:
            ask = msgspec.convert(message, Request)
        except (msgspec.ValidationError, RecursionError) as problem:
            raise BadMessage(f"the board cannot read a request: {problem}") from None
        if isinstance(ask, Get | Wait):
            if not 0 <= ask.wait_s <= WAIT_S:  # also NaN
                raise BadMessage(f"a wait of {ask.wait_s} s; accepted: 0 to {WAIT_S}")
            return self._wait(_Waiter(peer, ask, now + ask.wait_s))
        try:
            value, written = self._do(ask)
        except _Refused as problem:
            return [(peer, Reply(ask.request, "refused", str(problem)))]
        return [(peer, Reply(ask.request, "ok", value)), *self._wake(written)]

    def _do(self, ask: Set | Add | Append | CompareSet | Check | Delete | Count) -> tuple[Any, Iterable[str]]:
        """The reply's value, and the keys that were written."""
        match ask:
            case Set(values=values):
                self._write(values)
                return None, values
            case Add(key=key, amount=amount):
                total = self._number(key) + amount
                if total not in _INT64:
                    raise _Refused(f"the sum under {key!r} leaves 64 bits")
                self._write({key: b"%d" % total})
                return total, (key,)
            case Append(key=key, value=value):
                self._write({key: self._values.get(key, b"") + value})
                return None, (key,)
            case CompareSet(key=key, expected=expected, desired=desired):
                if self._values.get(key, b"") != expected:
                    return self._values.get(key, expected), ()
                self._write({key: desired})
                return desired, (key,)
            case Check(keys=keys):
                return all(key in self._values for key in keys), ()
            case Delete(key=key):
                return self._delete(key), ()
            case Count():
                return len(self._values), ()

    def _number(self, key: str) -> int:
        text = self._values.get(key, b"0")
        try:
            return int(text[:_INT64_DIGITS])
        except ValueError:
            raise _Refused(f"the value under {key!r} is no integer") from None

    def _write(self, values: dict[str, bytes]) -> None:
        """Write all of them or none."""
        grown = sum(_size(key, value) for key, value in values.items())
        grown -= sum(_size(key, self._values[key]) for key in values if key in self._values)
        if self.total_bytes + grown > self._limit_bytes:
            raise _Refused(f"the board is full: {self.total_bytes} of {self._limit_bytes} bytes, {grown} more asked")
        self._values |= values
        self.total_bytes += grown

    def _delete(self, key: str) -> bool:
        value = self._values.pop(key, None)
        if value is None:
            return False
        self.total_bytes -= _size(key, value)
        return True

    def _wait(self, waiter: _Waiter) -> Replies:
        waiter.missing = self._missing(waiter)
        if not waiter.missing:
            return [self._served(waiter)]
        if len(self._waiters) >= _WAITERS:
            return [(waiter.peer, Reply(waiter.ask.request, "refused", f"{_WAITERS} requests wait already"))]
        self._waiters.append(waiter)
        return ()

    def _wake(self, written: Iterable[str]) -> Replies:
        touched = [w for w in self._waiters if not w.missing.isdisjoint(written)]
        served = []
        for waiter in touched:
            waiter.missing.difference_update(written)
            if not waiter.missing:
                waiter.missing = self._missing(waiter)  # all anew: a key that was there may have been deleted
            if not waiter.missing:
                served.append(waiter)
        if served:
            gone = set(map(id, served))
            self._waiters = [w for w in self._waiters if id(w) not in gone]
        return [self._served(w) for w in served]

    def _missing(self, waiter: _Waiter) -> set[str]:
        return {key for key in waiter.ask.keys if key not in self._values}

    def _served(self, waiter: _Waiter) -> tuple[int, Reply]:
        ask = waiter.ask
        values = [self._values[key] for key in ask.keys] if isinstance(ask, Get) else None
        return waiter.peer, Reply(ask.request, "ok", values)


def _size(key: str, value: bytes) -> int:
    return _ENTRY_BYTES + len(key.encode()) + len(value)
