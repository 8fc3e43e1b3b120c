"""The heartbeat: a thread that tells the driver, beside the data path, that this worker lives and how far it is.

The driver answers each beat. A connection that breaks is made again, and what was not answered is said again. A driver
that does not answer, or is gone, ends this worker: after its step and a checkpoint where it can, else at once. If
another one may take the driver's place, the worker trains on until that one has come, or the time for it is over.
"""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import time
import traceback
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from volary.comm.control.errors import ConnectionLost, KeyRefused, NobodyThere, OtherAttempt
from volary.comm.groups.moving_bytes import MovingBytes
from volary.errors import VolaryError
from volary.run.launch.members import TrainingReport
from volary.train.member.driver_watch import DriverWatch
from volary.train.recovery.member_news import MemberNews

if TYPE_CHECKING:
    from volary.comm.control.connection import Connection
    from volary.run.control.requests import ChangeMembers
    from volary.run.launch.members import GroupMembers
    from volary.run.verdict import Verdict
    from volary.train.recording.recorder import Recorder

BEAT_S = 0.25
AGAIN_S = 0.1  # between two attempts to have a connection again
GOODBYE_S = 1.0  # until the driver has answered it
STACK_CHARACTERS = 20_000


class DriverAccess(Protocol):
    """A place in a run, by which its driver is reached."""

    @property
    def connection(self) -> Connection:
        """The connection to the driver, after the driver's welcome."""
        ...

    @property
    def give_up_after_s(self) -> float:
        """Seconds of silence after which the driver counts as lost."""
        ...

    @property
    def wait_for_driver_s(self) -> float:
        """Seconds after that for which another driver may take its place; 0: none does."""
        ...

    @property
    def has_other_driver(self) -> bool:
        """Whether another driver has taken the place of the one that was connected to."""
        ...

    def connect_again(self, report: TrainingReport) -> tuple[Connection, int]:
        """A new connection, and the number of the newest beat that the driver has; report: for another driver.

        Raises VolaryError.
        """
        ...

    def expect_members(self, newest: GroupMembers, requests: Sequence[Any]) -> None:
        """The driver has named these members, and passed these requests on."""
        ...

    def outlive_driver(self) -> None:
        """Let this process live on when its driver ends."""
        ...

    def show_alive(self) -> None:
        """Let others see, without the driver, that this worker is about to end in order."""
        ...


class EndWatch(Protocol):
    """Knows whether this worker is to finish its step, save and end."""

    asked_to_end: bool


class NoDriver:
    """Takes the place of a `Pulse` if there is no driver."""

    asked_to_end = False


class Pulse:
    """Beats until `stop`; carries the recorder's rows and events.

    asked_to_end: this worker is to finish its step, save and end; taken_away: as its machine is taken away.
    asked_to_leave: it alone is to leave. requests: what else this attempt of the run was asked to do, oldest first.
    members: who trains together, in a run that goes on without a lost worker. lost: why it is without a driver, if it
    is. abandon: called with a sentence when the run is over for this worker, whatever its training thread sits in
    (another worker is lost, or the driver); it must end the process.
    """

    def __init__(self, member: DriverAccess, recorder: Recorder, abandon: Callable[[str], None]) -> None:
        self.asked_to_end = self.asked_to_leave = self.taken_away = False
        self.requests: tuple[Any, ...] = ()
        self.members = MemberNews(member.give_up_after_s)
        self._member, self._recorder, self._abandon = member, recorder, abandon
        self._connection = member.connection
        self._driver = DriverWatch(member.give_up_after_s, time.monotonic())
        self._unanswered: deque[dict[str, Any]] = deque()
        self._beats = 0
        self._moving, self._progress, self._carries = MovingBytes(), -1, False
        self._can_finish = False
        self._sending = threading.Lock()
        self._stop_at: float | None = None
        self._thread = threading.Thread(target=self._beat_until_stopped, name="pulse", daemon=True)

    @property
    def lost(self) -> str:
        """Why this worker is without a driver; empty while it has one."""
        return self._driver.lost

    @property
    def unanswered(self) -> int:
        """Beats that the driver has not answered yet."""
        return len(self._unanswered)

    def start(self) -> None:
        """Start the thread that sends heartbeats."""
        self._thread.start()

    def can_finish(self, *, saves: bool) -> None:
        """Note that this worker needs no driver for what is left to do. saves: that ends with a checkpoint."""
        self._driver.saves, self._driver.wait_s = saves, self._member.wait_for_driver_s
        self._can_finish = True
        self._member.outlive_driver()

    def beat(self) -> None:
        """Send what the recorder holds now."""
        with contextlib.suppress(ConnectionLost):  # the thread finds that too, and connects again
            self._send()

    def ask_to_end(self, *, taken_away: bool = False) -> None:
        """Let the run end after this step; whoever asks one rank asks all."""
        self.taken_away |= taken_away
        self.asked_to_end = True

    def ask_to_leave(self) -> None:
        """Let this worker alone leave the run, where others go on without it."""
        self.asked_to_leave = True

    def pause(self, change: ChangeMembers) -> None:
        """Say that the members have all paused for this change, so that others follow them."""
        self.members.paused = change
        self.beat()

    def stop(self, verdict: Verdict) -> None:
        """Send what is left, say goodbye with `verdict`, and end the thread: once the driver has it.

        If that is lost, and another one may take its place, that one gets it, or the time for it is over.
        """
        self._stop_at = time.monotonic() + GOODBYE_S
        with contextlib.suppress(ConnectionLost):
            self._send(bye=asdict(verdict))
        wait_s = self._driver.wait_s
        self._thread.join(5 + (wait_s and 2 * (wait_s + self._member.give_up_after_s)))  # on a busy machine
        self._connection.close()

    def _beat_until_stopped(self) -> None:
        while not self._is_over():
            try:
                if self._stop_at is None:
                    self._send()
                self._listen(until=time.monotonic() + BEAT_S)
            except VolaryError:
                self._connect_again()
            if self._driver.missing and self._member.has_other_driver:
                self._connect_again()
            self._look()

    def _is_over(self) -> bool:
        """After the goodbye: whether the driver has it, or will not."""
        if self._stop_at is None:
            return False
        over = not self._driver.wait_s and time.monotonic() > self._stop_at
        return not self._unanswered or bool(self._driver.lost) or over

    def _listen(self, until: float) -> None:
        while not self._is_over() and (left_s := until - time.monotonic()) > 0:
            try:
                message = self._connection.receive(left_s)
            except TimeoutError:
                return
            self._driver.answered()
            self._obey(message)

    def _obey(self, message: dict[str, Any]) -> None:
        if "acknowledged" in message:
            self._drop_answered(int(message["acknowledged"]))
        if message.get("finish"):
            self.ask_to_end()
        if "requests" in message:  # all of this attempt, again and again
            self.requests = tuple(message["requests"])
        if "members" in message:
            self.members.change(**message["members"])
        if "requests" in message or "members" in message:
            self._member.expect_members(self.members.newest, self.requests)
        if message.get("stack"):
            self._send(stack=_stacks())
        if "end" in message and self._stop_at is None:
            self._abandon(str(message["end"]))

    def _drop_answered(self, newest: int) -> None:
        with self._sending:
            while self._unanswered and self._unanswered[0]["number"] <= newest:
                self._unanswered.popleft()

    def _send(self, **more: Any) -> None:
        recorder, paused = self._recorder, self.members.paused
        with self._sending:
            self._beats += 1
            message = {
                "number": self._beats,
                "step": recorder.step,
                "phase": recorder.phase,
                "call": recorder.call,
                "part": recorder.part,
                "progress": recorder.progress,
                "carries": self._carries,
                "paused": None if paused is None else msgspec.to_builtins(paused),
                "leaving": self.asked_to_leave,
                "taken_away": self.taken_away,
                **recorder.take(ending="bye" in more),
                **more,
            }
            self._unanswered.append(message)
            self._connection.send(message)

    def _connect_again(self) -> None:
        """Have a connection again, or find that there is no driver any more."""
        self._connection.close()
        while not self._is_over():
            try:
                connection, newest = self._member.connect_again(self._report())
            except NobodyThere:
                self._driver.refused()
            except ConnectionLost:
                pass  # its host does not answer
            except VolaryError as error:  # somebody else's run, or the driver wants nothing of us any more
                if not (self._driver.wait_s and isinstance(error, (KeyRefused, OtherAttempt))):
                    if self._stop_at is None:
                        self._abandon(str(error))
                    self._drop_answered(self._beats)
                    return
                self._driver.refused()  # somebody else has the lost one's port
            else:
                self._driver.answered()
                self._drop_answered(newest)
                if self._sent_again(connection):
                    return
            self._look()
            time.sleep(AGAIN_S)

    def _report(self) -> TrainingReport:
        newest = self.members.newest
        return TrainingReport(newest.ranks, newest.number, self.requests)

    def _sent_again(self, connection: Connection) -> bool:
        with self._sending:
            self._connection = connection
            try:
                for message in self._unanswered:
                    connection.send(message)
            except ConnectionLost:
                connection.close()
                return False
        return True

    def _look(self) -> None:
        recorder, driver = self._recorder, self._driver
        before, self._progress = self._progress, recorder.progress
        # but for that of heartbeats; a worker that makes progress needs no excuse
        self._carries = before == self._progress and self._moving.seen(apart_from=self._connection.descriptor)
        driver.look(
            time.monotonic(),
            progress=self._progress,
            step_s=recorder.step_s,
            saves=recorder.saves,
            carries=self._carries,
        )
        self.members.driver_missing = bool(driver.missing)
        if driver.missing and self._can_finish:
            self._member.show_alive()
        if not driver.lost or self._stop_at is not None:
            return
        if not self._can_finish:
            self._abandon(driver.lost)
        self.ask_to_end()
        if driver.overdue:
            self._abandon(f"{driver.lost}; the step could not be finished")


def _stacks() -> str:
    """The calls of every thread of this process, the training thread last and in it the innermost call last."""
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
