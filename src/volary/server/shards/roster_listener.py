"""A server's end of the roster's connection: it does what it is told, and beats."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import msgspec

from volary.comm.control.errors import ConnectionLost
from volary.errors import PeerLost
from volary.server.protocol.from_members import Beat, Saved
from volary.server.protocol.to_members import (
    Acknowledged,
    Clip,
    Close,
    Direct,
    End,
    Gone,
    Keep,
    Rate,
    Release,
    Save,
    ToMember,
    View,
)

if TYPE_CHECKING:
    from volary.comm.control.connection import Connection
    from volary.server.shards.host import Host

BEAT_S = 0.25
LOOK_S = 1.0  # between two looks at whether a thread of the host has failed
JOIN_S = 5.0

Write = Callable[[int, int, list[int]], dict[str, str]]  # snapshot, step, shards: to checksums by file


class Reports:
    """Sends a server's reports to the roster, in a thread of its own: beats from the first moment, and messages."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._waiting: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._beat: Callable[[], Beat] = lambda: Beat(0)
        self._thread = threading.Thread(target=self._run, name="server-reports", daemon=True)
        self._thread.start()

    def of(self, beat: Callable[[], Beat]) -> None:
        """Let heartbeats report what `beat` gives from now on."""
        self._beat = beat

    def send(self, message: Any) -> None:
        """Send a message; returns at once."""
        self._waiting.put(message)

    def close(self) -> None:
        """Send nothing more to the roster."""
        self._waiting.put(None)
        self._thread.join(JOIN_S)

    def _run(self) -> None:
        next_s = time.monotonic()
        while True:
            try:
                message = self._waiting.get(timeout=max(0.0, next_s - time.monotonic()))
                if message is None:
                    return
            except queue.Empty:
                message, next_s = self._beat(), time.monotonic() + BEAT_S
            try:
                self._connection.send(encoded(message))
            except ConnectionLost:
                return  # whoever receives hears of it


class RosterListener:
    """Receives the roster's messages over `connection`; answers beats. give_up_after_s: seconds of its silence."""

    def __init__(self, connection: Connection, give_up_after_s: float) -> None:
        self._connection, self._give_up_after_s = connection, give_up_after_s
        self._silent_s = 0.0
        self._again: list[ToMember] = []

    def put_back(self, message: ToMember) -> None:
        """Let it be what `next` returns next."""
        self._again.append(message)

    def next(self) -> ToMember | None:
        """Return the next message, or None after a moment. Raises PeerLost if it is gone, or silent for too long."""
        if self._again:
            return self._again.pop()
        try:
            message = decoded(self._connection.receive(LOOK_S))
        except TimeoutError:  # counted, not measured: a server that was stopped itself blames nobody
            self._silent_s += LOOK_S
            if self._silent_s >= self._give_up_after_s:
                text = f"the driver has not answered for {self._silent_s:.0f} s: it is stopped, or cut off"
                raise PeerLost(text) from None
            return None
        except ConnectionLost as problem:
            raise PeerLost(f"the driver is gone: {problem}") from None
        self._silent_s = 0.0
        return None if isinstance(message, Acknowledged) else message

    def welcome(self, within_s: float) -> ToMember:
        """Wait for the roster's first message. Raises PeerLost as `next` does, or if it does not come in time."""
        deadline = time.monotonic() + within_s
        while time.monotonic() < deadline:
            if (message := self.next()) is not None:
                return message
        raise PeerLost(f"the run's roster did not answer within {within_s:.0f} s")


class RosterOrders:
    """Hears the roster for a host, until the run ends. write: writes what is kept of a snapshot to a draft.

    changed: called with a new learning rate.
    """

    def __init__(
        self, hearing: RosterListener, reports: Reports, host: Host, write: Write, changed: Callable[[Rate], None]
    ) -> None:
        self._hearing, self._reports, self._host, self._write = hearing, reports, host, write
        self._changed = changed
        self._savers: list[threading.Thread] = []
        reports.of(host.beat)

    def follow(self) -> str:
        """Do what the roster says; returns the run's outcome. Raises PeerLost if the roster is gone."""
        try:
            while True:
                self._host.check()
                message = self._hearing.next()
                if isinstance(message, End):
                    return message.outcome
                if message is not None:
                    self._obey(message)
        finally:
            for saver in self._savers:
                saver.join(JOIN_S)

    def _obey(self, message: ToMember) -> None:
        host = self._host
        match message:
            case Close(closing):
                host.order(lambda: host.shard.close(closing))
            case Clip(number, factor):
                host.order(lambda: host.shard.clip(number, factor))
            case Direct(number, commands):
                host.order(lambda: host.shard.direct(number, commands))
            case Keep(snapshot, number):
                host.order(lambda: host.shard.keep(snapshot, number))
            case Release(snapshot):
                host.order(lambda: host.shard.release(snapshot))
            case Rate():
                self._changed(message)
            case Gone(worker):
                host.order(lambda: host.shard.gone(worker))
            case Save(snapshot, step, shards):
                saver = threading.Thread(
                    target=self._save, args=(snapshot, step, shards), name="server-saver", daemon=True
                )
                self._savers = [*(one for one in self._savers if one.is_alive()), saver]
                saver.start()
            case View():
                pass  # servers do not speak to each other
            case _:
                raise PeerLost(f"the run's server says {type(message).__name__} to a server")

    def _save(self, snapshot: int, step: int, shards: list[int]) -> None:
        try:
            report = Saved(snapshot, self._write(snapshot, step, shards))
        except OSError as error:
            report = Saved(snapshot, {}, str(error))
        except KeyError as error:
            report = Saved(snapshot, {}, f"{type(error).__name__}: {error}")
        self._reports.send(report)


def decoded(plain: Any) -> ToMember:
    """A message of the roster. Raises PeerLost if it is none."""
    try:
        message: ToMember = msgspec.convert(plain, ToMember)
    except msgspec.ValidationError as problem:
        raise PeerLost(f"the run's server says what no server knows: {problem}") from None
    return message


def encoded(message: Any) -> Any:
    """A message, with its kind, as it is sent to the roster."""
    return msgspec.to_builtins(message)
