"""Someone on the way between two ends, who hears all and may change it."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable
from typing import Self

import psutil

Change = Callable[[int, bytes], bytes]  # told the place of the first byte in its direction


def beyond_loopback() -> str | None:
    """An address of this machine that is not of loopback, if it has any."""
    for addresses in psutil.net_if_addrs().values():
        for one in addresses:
            if one.family == socket.AF_INET and not one.address.startswith("127."):
                return str(one.address)
    return None


class Wiretap:
    """Listens at `address` and forwards to `target`. heard: what the client said, and what the server did."""

    def __init__(self, target: tuple[str, int], from_client: Change | None = None) -> None:
        self.heard = (bytearray(), bytearray())
        self._target, self._from_client = target, from_client or (lambda at, data: data)
        self._door = socket.create_server((target[0], 0))
        self.address: tuple[str, int] = self._door.getsockname()[:2]
        self._plugs: list[socket.socket] = []
        self._threads = [threading.Thread(target=self._accept)]

    def __enter__(self) -> Self:
        self._threads[0].start()
        return self

    def __exit__(self, *_: object) -> None:
        for sock in [self._door, *self._plugs]:
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join()
        for sock in [self._door, *self._plugs]:
            sock.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._door.accept()
                server = socket.create_connection(self._target)
                self._plugs += [client, server]
                for way in ((client, server, 0, self._from_client), (server, client, 1, lambda at, data: data)):
                    self._threads.append(threading.Thread(target=self._forward, args=way))
                    self._threads[-1].start()

    def _forward(self, source: socket.socket, sink: socket.socket, side: int, change: Change) -> None:
        at = 0
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                self.heard[side].extend(data)
                sink.sendall(change(at, data))
                at += len(data)
        with contextlib.suppress(OSError):
            sink.shutdown(socket.SHUT_WR)
