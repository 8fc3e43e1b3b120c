"""A worker's connection to a store's register: it is admitted, asks for keys, and learns of other members."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import msgspec

from volary.comm.control.connection import Connection
from volary.comm.control.errors import BadFrame, BadMessage, ConnectionLost
from volary.errors import ServerLost, SettingError
from volary.server.client.link import Link
from volary.store.messages import (
    Declare,
    Filled,
    Find,
    Goodbye,
    Known,
    Left,
    Lost,
    Refused,
    StoreWelcome,
    StoreWorkerHello,
    ToWorker,
    decoded,
)
from volary.store.protocol import Key

CONNECT_TIMEOUT_S = 10.0
LISTEN_S = 3600.0  # then it is listened again


class Admission(NamedTuple):
    """host: of the register and of all servers."""

    connection: Connection
    welcome: StoreWelcome
    host: str
    key: bytes


def admitted(address: str, key_file: Path, worker: int) -> Admission:
    """Be known to the register at "host:port". Raises SettingError, ConnectionLost, KeyRefused."""
    if isinstance(worker, bool) or not isinstance(worker, int):
        raise SettingError(f"worker is {worker!r}; accepted: a number from 0")
    host, _, port = address.rpartition(":")
    if not host or not port.isdecimal():
        raise SettingError(f"address is {address!r}; accepted: host:port, as the store says it")
    try:
        key = bytes.fromhex(key_file.read_text())
    except OSError as problem:
        raise SettingError(f"key_file {key_file} cannot be read: {problem.strerror}") from None
    except ValueError:
        raise SettingError(f"key_file {key_file} holds no key; accepted: what the store wrote") from None
    hello = msgspec.to_builtins(StoreWorkerHello(worker))
    connection = Connection.open(host, int(port), key, "store", hello, timeout_s=CONNECT_TIMEOUT_S)
    try:
        welcome = decoded(connection.receive(CONNECT_TIMEOUT_S), ToWorker)
    except TimeoutError:
        connection.close()
        raise ConnectionLost(f"the store at {address} does not answer") from None
    if not isinstance(welcome, StoreWelcome):
        connection.close()
        raise SettingError(welcome.why if isinstance(welcome, Refused) else f"the store says {welcome}")
    return Admission(connection, welcome, host, key)


class Control:
    """Asks one thing at a time. notify: called with others who go, in a thread of its own."""

    def __init__(self, connection: Connection, link: Link, notify: Callable[[Left | Lost], None]) -> None:
        self._connection, self._link, self._notify = connection, link, notify
        self._answers: dict[Key | None, Known | Refused] = {}
        self._ending = False
        self._thread = threading.Thread(target=self._listen, name="store-control", daemon=True)
        self._thread.start()

    def ask(self, question: Declare | Find) -> Known:
        """Ask where a key is. Raises SettingError if it is refused, and what has gone wrong."""
        key = question.key
        self.send(question)
        self._link.wait_for(lambda: key in self._answers, lambda: f"the first values of key {key!r}")
        answer = self._answers.pop(key)
        if isinstance(answer, Refused):
            raise SettingError(answer.why)
        return answer

    def send(self, message: Declare | Find | Filled | Goodbye) -> None:
        """Send a message to the register. Raises ServerLost."""
        try:
            self._connection.send(message)
        except ConnectionLost:
            raise _gone() from None

    def close(self) -> None:
        """End the connection to the register; harmless when repeated."""
        self._ending = True
        self._connection.close()
        self._thread.join()

    def _listen(self) -> None:
        try:
            while True:
                self._receive()
        except (ConnectionLost, BadFrame, BadMessage):
            if not self._ending:
                self._link.fail(_gone())

    def _receive(self) -> None:
        try:
            message = decoded(self._connection.receive(LISTEN_S), ToWorker)
        except TimeoutError:
            return
        with self._link.changed:
            if isinstance(message, Known | Refused):
                self._answers[message.key] = message
            elif isinstance(message, Left | Lost):
                self._notify(message)
            self._link.changed.notify_all()


def _gone() -> ServerLost:
    return ServerLost("the process that serves the store has ended, and the store with it")
