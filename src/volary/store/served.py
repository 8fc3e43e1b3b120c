"""A store that this process serves: the register here, and a process for each server."""

from __future__ import annotations

import os
import secrets
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Self

import msgspec

from volary.comm.control.sealing import Security
from volary.comm.control.server import KeyedServer
from volary.errors import BadInput, ServerLost, SettingError
from volary.store.__main__ import ServerStart
from volary.store.register import Register, has_ended
from volary.store.settings import Settings

KEY_BYTES = 32
START_WITHIN_S = 120.0  # torch is imported, and the user's updater
END_WITHIN_S = 10.0
LOOK_S = 0.1
PRINTED_BYTES = 2000  # of what a server printed last


class ServedStore:
    """Use it in a `with`: servers run from its begin to its end.

    address: what workers connect to. key_file: what proves them to the store; readable by its owner alone.
    """

    def __init__(self, settings: Settings, host: str) -> None:
        self.address, self.key_file = "", Path()
        self._settings, self._host = settings, host
        self._changed = threading.Event()
        self._register = Register(settings, self._changed.set)
        self._processes: list[subprocess.Popen[bytes]] = []

    def check(self) -> None:
        """Raise ServerLost if a server has ended."""
        for number, failed in self._register.lost.items():
            if failed.bad_input:
                raise SettingError(failed.why)
            raise ServerLost(has_ended(number, failed) + self._last_words(number))

    @property
    def pids(self) -> list[int]:
        """The process numbers of the servers, in their order."""
        return [process.pid for process in self._processes]

    def __enter__(self) -> Self:
        self._folder = tempfile.TemporaryDirectory(prefix="volary-store-")
        key = secrets.token_bytes(KEY_BYTES)
        self.key_file = Path(self._folder.name) / "key"
        self.key_file.touch(mode=0o600)
        self.key_file.write_text(key.hex())
        security: Security = "always" if self._settings.security == "always" else "encrypted"
        self._server = KeyedServer(key, {"store": self._register}, self._host, security=security)
        try:
            self._begin()
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        try:
            if kind is None:
                self.check()
        finally:
            self._end()

    def _begin(self) -> None:
        try:
            host, port = self._server.start().address
        except OSError as problem:
            raise BadInput(f"host is {self._host!r}: {problem}; accepted: an address of this machine") from None
        self.address = f"{host}:{port}"
        for number in range(self._settings.servers):
            order = ServerStart(host, port, str(self.key_file), number, self._settings)
            with self._log(number).open("ab") as output:
                self._processes.append(
                    subprocess.Popen(
                        [sys.executable, "-m", "volary.store", msgspec.json.encode(order).decode()],
                        env=os.environ | {"VOLARY_DRIVER": str(os.getpid())},
                        stdin=subprocess.DEVNULL,
                        stdout=output,
                        stderr=subprocess.STDOUT,
                        # Ctrl-C in the terminal is ours to answer
                        start_new_session=True,
                    )
                )
        self._await(time.monotonic() + START_WITHIN_S)

    def _await(self, deadline: float) -> None:
        while not self._register.ready:
            self.check()
            for number, process in enumerate(self._processes):
                if process.poll() is not None:
                    raise ServerLost(f"server {number} of the store did not start{self._last_words(number)}")
            if time.monotonic() > deadline:
                raise ServerLost(f"the store's servers did not start within {START_WITHIN_S:.0f} s")
            self._changed.wait(LOOK_S)
            self._changed.clear()

    def _end(self) -> None:
        """End all; nothing is left after it."""
        self._server.stop()  # servers end with it
        deadline = time.monotonic() + END_WITHIN_S
        for process in self._processes:
            try:
                process.wait(max(0.0, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        self._folder.cleanup()

    def _log(self, number: int) -> Path:
        return Path(self._folder.name) / f"server-{number}.log"

    def _last_words(self, number: int) -> str:
        code = self._processes[number].poll()
        ended = "" if code is None else f"; signal {-code}" if code < 0 else f"; exit code {code}"
        printed = self._log(number).read_bytes()[-PRINTED_BYTES:].decode(errors="replace").strip()
        return ended + (f"; it said: {printed}" if printed else "")
