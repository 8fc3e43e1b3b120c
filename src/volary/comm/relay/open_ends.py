"""Connections and sockets that threads of their own are busy with, so that all of them end at once."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from volary.comm.control.connection import Connection
from volary.comm.control.errors import BadMessage, ConnectionLost

JOIN_S = 5.0


class OpenEnds:
    """closed: set once nothing new is to begin."""

    def __init__(self, name: str) -> None:
        self.closed = threading.Event()
        self._name = name
        self._ends: set[Connection | socket.socket] = set()
        self._threads: set[threading.Thread] = set()
        self._changing = threading.Lock()

    def start(self, function: Callable[..., None], *arguments: Any) -> None:
        """Call it in a thread of its own. Raises BadMessage if the system gives none now."""

        def run() -> None:
            try:
                function(*arguments)
            finally:
                with self._changing:
                    self._threads.discard(thread)

        thread = threading.Thread(target=run, name=self._name, daemon=True)
        with self._changing:
            self._threads.add(thread)
        try:
            thread.start()
        except RuntimeError as problem:
            with self._changing:
                self._threads.discard(thread)
            raise BadMessage(str(problem)) from None

    @contextmanager
    def using(self, *ends: Connection | socket.socket) -> Iterator[None]:
        """Have these ended by `close` meanwhile, and at the end. Raises ConnectionLost if all is closed."""
        with self._changing:
            self._ends.update(ends)
        try:
            if self.closed.is_set():
                raise ConnectionLost("closed on this side")
            yield
        finally:
            with self._changing:
                self._ends.difference_update(ends)
            for end in ends:
                end.close()

    def close(self) -> None:
        """End all of them, and their threads."""
        self.closed.set()
        with self._changing:
            ends, threads = [*self._ends], [*self._threads]
        for end in ends:
            _cut(end)
        for thread in threads:
            if thread is not threading.current_thread():
                thread.join(JOIN_S)


def _cut(end: Connection | socket.socket) -> None:
    """End it for whoever waits for it, in another thread."""
    if isinstance(end, Connection):
        end.close()
    else:
        with contextlib.suppress(OSError):
            end.shutdown(socket.SHUT_RDWR)
