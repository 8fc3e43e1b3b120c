"""The driver's loop: hold the run, serve its meeting point, look until it is over, and leave nothing behind."""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType

from volary.comm.board import Board
from volary.comm.server import KeyedServer
from volary.driver.ending import Ending, Watcher
from volary.driver.hub import Hub
from volary.driver.judge import judge, read_verdicts
from volary.driver.watch import Rules, Watch
from volary.engine._base import Exited, Handle
from volary.errors import Stopped, VolaryError
from volary.run.checkpoints import Checkpoints
from volary.run.directory import RunDirectory
from volary.run.journal import Journal

LOOK_S = 0.1
SHOW_S = 0.25
LINGER_S = 1.0  # after bad news: how long the others may take to say what they saw
LEAVE_S = 10.0  # after all goodbyes: how long processes may take to end
BAD = ("failed", "refused", "peer_lost")


@dataclass(frozen=True)
class Meeting:
    """Where the workers of one life of a run meet its server. server_life: what the server proves to be."""

    host: str
    port: int
    life: int
    server_life: str


Launcher = Callable[[Meeting], Handle]


class Drive:
    """One life of a run. launcher starts the workers once the meeting point stands; host: where it listens."""

    def __init__(
        self, directory: RunDirectory, world_size: int, rules: Rules, watcher: Watcher, host: str = "127.0.0.1"
    ) -> None:
        self._directory, self._world_size, self._watcher, self._host = directory, world_size, watcher, host
        self._watch = Watch(world_size, rules, time.monotonic())
        self._exits: list[Exited] = []
        self._interrupts = 0
        self._finish_asked = False
        self._wake = threading.Event()

    def run(self, launcher: Launcher) -> Ending:
        """Drive the run to its end. Raises what `judge` raises, and Stopped if the user would not wait for the step."""
        journal = Journal(self._directory.database)
        try:
            newest = Checkpoints(self._directory.checkpoints).steps()
            life = journal.start_life(newest[-1] if newest else 0)
            journal.note(state="running", started_at=time.time(), workers=self._world_size, message="")
            journal.event("started", workers=self._world_size)
            try:
                with self._signals():
                    ending = self._serve(journal, life, launcher)
            except VolaryError as error:
                _close(journal, "stopped" if isinstance(error, Stopped) else "failed", str(error))
                raise
            except BaseException as error:
                _close(journal, "failed", f"the driver failed: {type(error).__name__}: {error}")
                raise
            _close(journal, ending.state, ending.message, ending.step)
            return ending
        finally:
            journal.close()
            self._watcher.ended()

    def _serve(self, journal: Journal, life: int, launcher: Launcher) -> Ending:
        hub = Hub(self._watch, journal)
        server = KeyedServer(self._directory.key(), {"pulse": hub, "board": Board()}, self._host)
        server.start()
        try:
            meeting = Meeting(*server.address, life, server.life)
            handle = launcher(meeting)
            try:
                journal.note(pids=json.dumps([os.getpid(), *handle.pids().values()]))
                self._watcher.started(self._directory)
                self._look_until_over(server, handle)
                self._part(server, handle)
            finally:
                handle.stop(0.0)
        finally:
            server.stop()
        return judge(self._directory, self._watch, self._exits, read_verdicts(self._directory, self._world_size, life))

    def _look_until_over(self, server: KeyedServer, handle: Handle) -> None:
        shown = 0.0
        while not self._is_over(handle):
            if self._interrupts and not self._finish_asked:
                self._finish_asked = True
                self._tell(server, {"finish": True})
            if self._interrupts > 1:
                handle.stop(0.0)
                raise Stopped(f"stopped at once\ngo on: volary resume {self._directory.path}")
            if time.monotonic() - shown > SHOW_S:
                self._watcher.look()
                shown = time.monotonic()
            self._wake.wait(LOOK_S)
            self._wake.clear()

    def _is_over(self, handle: Handle) -> bool:
        """Whether there is bad news, or everybody has left."""
        self._exits += handle.events()
        if self._watch.lost or self._watch.everyone_left or any(gone.code for gone in self._exits):
            return True
        return any(worker.goodbye in BAD for worker in self._watch.workers.values())

    def _part(self, server: KeyedServer, handle: Handle) -> None:
        """Let the others say what they saw, then end them; a worker that finished well gets the time to leave."""
        well = self._watch.everyone_left and not self._watch.lost
        deadline = time.monotonic() + (LEAVE_S if well else LINGER_S)
        running = set(handle.pids())
        while time.monotonic() < deadline:
            self._exits += handle.events()
            left = {gone.rank for gone in self._exits}
            if (self._watch.everyone_left and not running - left) or not running - left - self._silent():
                break
            self._wake.wait(LOOK_S)
            self._wake.clear()
        if self._watch.lost:
            first = self._watch.lost[0]
            self._tell(server, {"end": f"rank {first.rank} {first.sentence}"})

    def _silent(self) -> set[int]:
        """Those who will not say anything any more."""
        return {lost.rank for lost in self._watch.lost if lost.kind != "died"}

    def _tell(self, server: KeyedServer, message: dict[str, object]) -> None:
        for worker in self._watch.workers.values():
            if worker.peer is not None and not worker.goodbye:
                server.post(worker.peer, message)

    @contextmanager
    def _signals(self) -> Iterator[None]:
        """Ctrl-C or a termination once: finish the step. Twice: now. Only the main thread can hear them."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return

        def asked(_number: int, _frame: FrameType | None) -> None:
            self._interrupts += 1
            self._wake.set()

        before = {number: signal.signal(number, asked) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


def _close(journal: Journal, state: str, message: str, step: int | None = None) -> None:
    journal.event(state, message=message, step=step)
    journal.note(state=state, message=message, ended_at=time.time(), **({} if step is None else {"steps_done": step}))
