"""A worker's connection to the roster: it is given tasks and the view of servers, and reports what is done."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import msgspec

from volary.comm.control.errors import ConnectionLost
from volary.errors import NotSaved, PeerLost, Stopped, VolaryError
from volary.server.protocol.from_members import (
    Again,
    Ask,
    AskSave,
    Computed,
    Evaluated,
    Figures,
    Leave,
    Over,
    Saved,
    Unreachable,
)
from volary.server.protocol.to_members import (
    LEFT,
    Clipped,
    Dropped,
    End,
    EvaluatePiece,
    Figure,
    Keep,
    Learn,
    Rate,
    Release,
    Save,
    SaveEnded,
    ToMember,
    View,
    Welcome,
)
from volary.server.protocol.updates import Portion
from volary.train.served.clip_decision import ClipDecision

if TYPE_CHECKING:
    from volary.comm.control.connection import Connection
    from volary.server.protocol.from_members import FromMember
    from volary.server.protocol.norms import ClipNorm
    from volary.train.coordinator import Outcome
    from volary.train.served.residuals import Residuals

Task = Learn | EvaluatePiece | Figure | Leave | Rate
WELCOME_WITHIN_S = 60.0
LEAVE_S = 10.0  # for the thread to end
LOOK_S = 0.25  # how often it is looked whether this worker is to end
_FOR_ALL = (Ask, Computed, Evaluated, Figures)  # what one worker says for all that hold its replica


class RosterClient:
    """Over `connection`, whose hello has been said. leaving: whether this worker was asked to go.

    Iterating gives tasks until the run is over for this worker; one is asked for ahead. Leave among them: it was asked
    to go; Rate: the learning rate changes. outcome: how it ended. leads: this worker speaks for all that hold its
    replica, who are given the same tasks.
    """

    def __init__(self, connection: Connection, leaving: Callable[[], bool], *, leads: bool = True) -> None:
        self.outcome: Outcome = "finished"
        self._leads = leads
        self._connection, self._leaving = connection, leaving
        self._sent = self._going = False
        self._tasks: queue.Queue[Task | End | Exception] = queue.Queue()
        self._answers: queue.Queue[SaveEnded | Clipped | Dropped | End | Exception] = queue.Queue()
        self._clipping: int | None = None  # the contribution whose norm is waited for
        self._decision = ClipDecision(self._say)
        self._dropped = -1  # the newest contribution that was
        self._again = -1  # that which learns again
        self._at, self._oldest = -1, 0  # of the contribution at hand
        self._given: dict[int, Learn] = {}  # by clock, those after it: one that follows others may be several behind
        self._ended = threading.Event()
        self._view: Callable[[View], None] = lambda _: None
        self._failed: Callable[[Exception], None] = lambda _: None
        self._dismissed: Callable[[str], object] = lambda _: None
        self._residuals: Residuals | None = None
        self._thread = threading.Thread(target=self._listen, name="roster", daemon=True)

    def welcome(self) -> Welcome | None:
        """The roster's first word; None if the run is over already: `outcome` says how.

        Raises PeerLost if there is none, or if it wants nothing of us.
        """
        try:
            message = _read(self._connection.receive(WELCOME_WITHIN_S))
        except TimeoutError:
            raise PeerLost(f"the run's roster did not answer within {WELCOME_WITHIN_S:.0f} s") from None
        if isinstance(message, End):
            self.outcome = self._meant(message)
            return None
        if not isinstance(message, Welcome):
            raise PeerLost(f"the run's roster began with {type(message).__name__}")
        return message

    def start(
        self,
        view: Callable[[View], None],
        failed: Callable[[Exception], None],
        residuals: Residuals,
        dismissed: Callable[[str], object] = lambda _: None,
    ) -> None:
        """Listen, and ask for the first task. view: called with the servers of the run.

        failed: called with the error that ends this worker. residuals: asked for what checkpoints need of them.
        dismissed: called with the reason for which the run goes on without this worker; from another thread.
        """
        self._view, self._failed, self._residuals, self._dismissed = view, failed, residuals, dismissed
        self._thread.start()
        self._say(Ask())

    def __iter__(self) -> Iterator[Task]:
        while True:
            task = self._next()
            if isinstance(task, Exception):
                raise task
            if isinstance(task, End):
                self._end(task)
                return
            again = isinstance(task, Learn) and task.clock == self._again
            if again and isinstance(task, Learn) and task.portions:
                continue  # it was given before the roster knew, and comes as the next one
            if not (again or isinstance(task, Leave | Rate)):
                self._say(Ask())  # ahead: the next is here when this one is done
            if isinstance(task, Learn):
                self._at, self._oldest = task.clock, task.oldest
                for clock in [one for one in self._given.copy() if one <= task.clock]:
                    del self._given[clock]  # another thread adds to them
            if not (isinstance(task, Learn) and (self._going or self.is_dropped(task.clock))):
                yield task

    def _next(self) -> Task | End | Exception:
        """The next message that has arrived, or the wish to go."""
        while self._sent or not self._leaving():
            try:
                return self._tasks.get(timeout=LOOK_S)
            except queue.Empty:
                continue
        self._sent = True
        return Leave()

    def _end(self, task: End) -> None:
        self.outcome = self._meant(task)
        if task.unsaved and not self._going:
            raise NotSaved(task.unsaved)

    def _meant(self, end: End) -> Outcome:
        if self._going or end.outcome == LEFT:
            return LEFT
        if not end.is_of_run:
            raise PeerLost(end.outcome)
        return "finished" if end.outcome == "finished" else "stopped"

    @property
    def oldest_ahead(self) -> int:
        """The least update that the next contribution's parameters must hold, as far as it is known."""
        following = self._after(self._at)
        return self._oldest if following is None else following.oldest

    def ahead(self, clock: int) -> list[Portion]:
        """The portions of the contribution after the one at `clock`, if the roster has said so already."""
        following = self._after(clock)
        return [] if following is None else following.portions

    def _after(self, clock: int) -> Learn | None:
        given = self._given.copy()
        return given[min(later)] if (later := [one for one in given if one > clock]) else None

    def is_dropped(self, clock: int) -> bool:
        """Whether others have gone on without a contribution that is not done. They are dropped in order."""
        return clock <= self._dropped

    def computed(
        self,
        clock: int,
        loss: float,
        *,
        finite: bool,
        lost: int,
        rates: tuple[float, ...],
        counted: float,
        waits: bool = False,
        carries: bool = False,
    ) -> None:
        """Forward of a contribution is over. lost, rates, counted, carries: see `Computed`. waits: for `decide`."""
        if waits:
            self._decision.open(clock)
        self._say(Computed(clock, loss if finite else 0.0, finite, lost, rates, counted, waits, carries))

    def again(self, clock: int) -> None:
        """Let contribution `clock`, the next task, learn from the samples of the one before it once more."""
        self._again = clock
        self._say(Again(clock))

    def done(self, clock: int, waited_s: float = 0.0) -> None:
        """A contribution is held, or there is none. waited_s: for parameters, before it. From any thread."""
        self._decision.held(clock, round(1000 * waited_s))

    def decide(self, clock: int, clip: ClipNorm | None) -> None:
        """A contribution that waits is clipped by the norm of the gradient of its update; None: it is not."""
        self._clipping = None if clip is None else clock
        self._decision.decide(clock, clip)

    def norm(self, clock: int) -> float:
        """Wait for the norm by which the contribution's update is clipped; 0 if it is in none.

        Raises Stopped if the run ends before, and what ends this worker.
        """
        if self.is_dropped(clock):
            return 0.0
        message = self._answer()
        self._clipping = None
        return message.norm if isinstance(message, Clipped) else 0.0

    def evaluated(self, task: EvaluatePiece, totals: list[float], lost: int) -> None:
        """A piece of an evaluation. lost: samples of it that could not be read."""
        self._say(Evaluated(task.snapshot, task.piece, totals, lost))

    def figures(self, snapshot: int, figures: dict[str, float], value: float) -> None:
        """Report to the roster the metrics that an evaluation's totals amount to."""
        self._say(Figures(snapshot, figures, value))

    def saved(self, message: Saved) -> None:
        """Report that this worker's own part of a checkpoint is written, or why not. From any thread."""
        self._say(message)

    def unreachable(self, server: int) -> None:
        """Report that a server cannot be reached. From any thread."""
        self._say(Unreachable(server))

    def leave(self, *, alone: bool) -> None:
        """Go. alone: the others go on, and what is not done is theirs; else the run ends as it can, or for all who hold
        this worker's replica once they have done what they were given.
        """
        self._going = alone
        self._say(Leave())

    def save(self, clock: int) -> str:
        """Have the run saved, with what this worker's own loop keeps; returns why that failed. It waits for the others.

        clock: of this worker's next contribution. Raises Stopped if the run ends before, and what ends this worker.
        """
        self._say(AskSave(clock))
        message = self._answer()
        assert isinstance(message, SaveEnded)
        return message.problem

    def _answer(self) -> SaveEnded | Clipped | Dropped:
        message = self._answers.get()
        if isinstance(message, Exception):
            raise message
        if isinstance(message, End):
            raise Stopped("the run is over")
        return message

    def over(self, *, elastic: bool) -> None:
        """This worker's own loop is over: see the run out. elastic: it may also go before."""
        self._say(Over())
        while not isinstance(task := self._next(), End | Exception):
            if isinstance(task, Leave):
                self.leave(alone=elastic)
        if isinstance(task, Exception):
            raise task
        self._end(task)

    def close(self) -> None:
        """End the connection to the roster; harmless when repeated."""
        self._ended.set()
        self._connection.close()
        if self._thread.is_alive():
            self._thread.join(LEAVE_S)

    def _say(self, message: FromMember) -> None:
        if not self._leads and isinstance(message, _FOR_ALL):
            return
        try:
            self._connection.send(msgspec.to_builtins(message))
        except ConnectionLost as problem:
            self._fail(problem)

    def _listen(self) -> None:
        try:
            while not self._ended.is_set():
                try:
                    message = _read(self._connection.receive(LOOK_S))
                except TimeoutError:
                    continue
                self._receive(message)
        except VolaryError as problem:
            self._fail(problem)

    def _receive(self, message: ToMember) -> None:
        if isinstance(message, View):
            self._view(message)
        elif isinstance(message, Keep | Save | Release):
            self._receive_of_snapshot(message)
        elif isinstance(message, Learn | EvaluatePiece | Figure | Rate | End):
            if isinstance(message, Learn) and self._residuals is not None:
                self._residuals.settle(message.settled)
            if isinstance(message, Learn):
                self._given[message.clock] = message
            self._tasks.put(message)
            if isinstance(message, End):
                self._answers.put(message)
                if not message.is_of_run and message.outcome != LEFT:
                    self._dismissed(message.outcome)
        elif isinstance(message, SaveEnded | Clipped):
            self._answers.put(message)
        elif isinstance(message, Dropped):
            self._dropped = max(self._dropped, message.clock)
            if self._residuals is not None:
                self._residuals.drop(message.clock)
            if message.clock == self._clipping:
                self._answers.put(message)
        else:
            raise PeerLost(f"the run's roster sent a worker {type(message).__name__}")

    def _receive_of_snapshot(self, message: Keep | Save | Release) -> None:
        assert self._residuals is not None
        match message:
            case Keep():
                self._residuals.keep(message.snapshot, message.number)
            case Save():
                self._residuals.save(message.snapshot, message.step, first=message.first)
            case Release():
                self._residuals.release(message.snapshot)

    def _fail(self, problem: Exception) -> None:
        if self._ended.is_set():
            return
        lost = PeerLost(f"the run's roster is gone: {problem}") if isinstance(problem, ConnectionLost) else problem
        self._tasks.put(lost)
        self._answers.put(lost)
        self._failed(lost)


def _read(message: Any) -> ToMember:
    try:
        known: ToMember = msgspec.convert(message, ToMember)
    except msgspec.ValidationError as problem:
        raise PeerLost(f"the run's roster says what cannot be understood: {problem}") from None
    return known
