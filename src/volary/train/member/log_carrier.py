"""Carries a growing log to the driver's machine, piece by piece."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from pathlib import Path

from volary.comm.files.client import FileClient
from volary.comm.files.messages import PIECE_BYTES
from volary.errors import VolaryError

LOOK_S = 0.5
SETTLE_S = 2.0
AGAIN_BYTES = PIECE_BYTES  # of what was sent before a connection broke: it may not have come


class LogCarrier:
    """A thread of its own, until the process ends. connect: as in `RemoteDirectory`."""

    def __init__(self, log: Path, connect: Callable[[], FileClient]) -> None:
        self._log, self._connect = log, connect
        self._client: FileClient | None = None
        self._sent = 0
        self._now, self._idle = threading.Event(), threading.Event()
        threading.Thread(target=self._carry, name="log", daemon=True).start()

    def settle(self) -> None:
        """Wait until all that is there by now has been sent, for at most `SETTLE_S`."""
        self._idle.clear()
        self._now.set()
        self._idle.wait(SETTLE_S)

    def _carry(self) -> None:
        while True:
            asked = self._now.wait(LOOK_S)
            self._now.clear()
            try:
                self._send()
            except (OSError, VolaryError):  # it is sent again; where the driver has gone, the heartbeat says so
                self._give_up()
            if asked:
                self._idle.set()

    def _send(self) -> None:
        with self._log.open("rb") as file:
            file.seek(self._sent)
            while piece := file.read(PIECE_BYTES):
                self._client = self._client or self._connect()
                self._client.log(self._sent, piece)
                self._sent += len(piece)

    def _give_up(self) -> None:
        if self._client is not None:
            with contextlib.suppress(OSError):
                self._client.close()
        self._client, self._sent = None, max(0, self._sent - AGAIN_BYTES)
