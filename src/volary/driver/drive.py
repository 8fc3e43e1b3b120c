"""The driver's loop: hold the run, serve its meeting point, look until it is over, and leave nothing behind."""

from __future__ import annotations

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
                self._watcher.started(self._directory)
                self._look_until_over(lambda: server.call_soon(hub.finish), handle)
                self._part(handle)
                server.call_soon(lambda: hub.tell({"end": self._bad_news() or "the run is over"}))
            finally:
                handle.stop(0.0)
        finally:
            server.stop()
        return judge(self._directory, self._watch, self._exits, read_verdicts(self._directory, self._watch, life))

    def _look_until_over(self, ask_to_finish: Callable[[], None], handle: Handle) -> None:
        shown, asked = 0.0, False
        while not self._is_over(handle):
            if self._interrupts and not asked:
                asked = True
                ask_to_finish()
            if self._interrupts > 1:
                raise Stopped(f"stopped at once\ngo on: volary resume {self._directory.path}")
            if time.monotonic() - shown > SHOW_S:
                self._watcher.look()
                shown = time.monotonic()
            self._wake.wait(LOOK_S)
            self._wake.clear()

    def _is_over(self, handle: Handle) -> bool:
        """Whether there is bad news, or everybody has left."""
        # exits of earlier looks: by now the goodbye that a worker sent before has come
        fled = any(not self._watch.workers[gone.rank].goodbye for gone in self._exits)
        self._exits += handle.events()
        return fled or self._watch.everyone_left or bool(self._bad_news())

    def _bad_news(self) -> str:
        """The first reason, if there is any, for which the run cannot go on."""
        for lost in self._watch.lost:
            return f"rank {lost.rank} {lost.sentence}"
        goodbyes = [worker.goodbye for worker in self._watch.workers.values() if worker.goodbye]
        return next((f"rank {bye.rank}: {bye.reason}" for bye in goodbyes if bye.outcome in BAD), "")

    def _part(self, handle: Handle) -> None:
        """Give those who are left the time to say what they saw, or, where all went well, to end."""
        well = self._watch.everyone_left and not self._watch.lost
        deadline = time.monotonic() + (LEAVE_S if well else LINGER_S)
        while self._is_awaited(handle) and time.monotonic() < deadline:
            self._wake.wait(LOOK_S)
            self._wake.clear()
            self._exits += handle.events()

    def _is_awaited(self, handle: Handle) -> bool:
        """Whether a worker may still speak, or one that has gone still has its process here."""
        mute = {lost.rank for lost in self._watch.lost}
        ending = set(handle.pids()) - {gone.rank for gone in self._exits}
        workers = self._watch.workers.values()
        return any(w.rank not in mute if w.here else w.pid and w.rank in ending for w in workers)

    @contextmanager
    def _signals(self) -> Iterator[None]:
        """Ctrl-C or a termination once: finish the step. Twice: now. Only the main thread can hear them."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return

        def asked(_number: int, _frame: FrameType | None) -> None:
            self._interrupts += 1
            self._wake.set()

        asking = [signal.SIGINT, signal.SIGTERM]
        if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:  # else it was started by nohup
            asking.append(signal.SIGHUP)
        before = {number: signal.signal(number, asked) for number in asking}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


def _close(journal: Journal, state: str, message: str, step: int | None = None) -> None:
    journal.event(state, message=message, step=step)
    journal.note(state=state, message=message, ended_at=time.time(), **({} if step is None else {"steps_done": step}))
