"""The heartbeat: a thread that tells the driver, beside the data path, that this worker lives and how far it is."""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import time
import traceback
from collections.abc import Callable
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from volary.comm.errors import ConnectionLost
from volary.errors import VolaryError

if TYPE_CHECKING:
    from volary.comm.wire import Connection
    from volary.run.verdict import Verdict
    from volary.train.recorder import Recorder

BEAT_S = 0.25
STACK_CHARACTERS = 20_000


class Pulse:
    """Beats over `connection` until `stop`; carries the recorder's rows and events.

    asked_to_end: the driver wants this worker to finish its step, save and end.
    abandon: called with a sentence when the run is over for this worker, whatever its training thread sits in
    (another worker is lost, or the driver is gone); it must end the process.
    """

    def __init__(self, connection: Connection, recorder: Recorder, abandon: Callable[[str], None]) -> None:
        self.asked_to_end = False
        self._connection, self._recorder, self._abandon = connection, recorder, abandon
        self._sending = threading.Lock()
        self._stopping = False
        self._thread = threading.Thread(target=self._beat_until_stopped, name="pulse", daemon=True)

    def start(self) -> None:
        """Begin to beat."""
        self._thread.start()

    def beat(self) -> None:
        """Send what the recorder holds now."""
        with contextlib.suppress(ConnectionLost):  # the thread finds that too, and ends the process
            self._send()

    def ask_to_end(self) -> None:
        """Let the run end after this step; whoever asks one rank asks all."""
        self.asked_to_end = True

    def stop(self, verdict: Verdict) -> None:
        """Send what is left, say goodbye with `verdict`, and end the thread."""
        self._stopping = True
        with contextlib.suppress(ConnectionLost):
            self._send(bye=asdict(verdict))
        self._connection.close()
        self._thread.join(timeout=5)

    def _beat_until_stopped(self) -> None:
        try:
            while not self._stopping:
                self._send()
                self._listen(until=time.monotonic() + BEAT_S)
        except VolaryError:
            if not self._stopping:
                self._abandon("the driver is gone")

    def _listen(self, until: float) -> None:
        while not self._stopping and (left_s := until - time.monotonic()) > 0:
            try:
                message = self._connection.receive(left_s)
            except TimeoutError:
                return
            self._obey(message)

    def _obey(self, message: dict[str, Any]) -> None:
        if message.get("finish"):
            self.ask_to_end()
        if message.get("stack"):
            self._send(stack=_stacks())
        if "end" in message:
            self._abandon(str(message["end"]))

    def _send(self, **more: Any) -> None:
        recorder = self._recorder
        with self._sending:
            self._connection.send(
                {
                    "step": recorder.step,
                    "phase": recorder.phase,
                    "progress": recorder.progress,
                    **recorder.take(),
                    **more,
                }
            )


def _stacks() -> str:
    """What every thread of this process is doing, the training thread last and in it the innermost call last."""
    main = threading.main_thread().ident
    frames = sorted(sys._current_frames().items(), key=lambda pair: pair[0] == main)
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    stacks = (f"Thread {names.get(one, one)}\n{''.join(traceback.format_stack(frame))}" for one, frame in frames)
    return "\n".join(stacks)[-STACK_CHARACTERS:]


def leave_now(exit_code: int) -> None:
    """End this process at once, although its training thread may sit in a collective."""
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError):  # a full disk
            stream.flush()
    os._exit(exit_code)
