"""Applies what was agreed, chunk by chunk as it arrives, and says when a parameter may be used."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from math import inf
from queue import PriorityQueue
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from volary.exchange.gradients.bucket import Chunk, ParameterSlot

JOIN_S = 5.0


class UpdateThread:
    """Applies chunks between two steps, on a thread of its own, as they come; then their parameters may be used again.

    slots: in the order in which forward uses them: of the chunks that are there the most urgent is applied first.
    apply: the update of one chunk; None where all are updated at once, elsewhere. applied: called after each with the
    chunk and when it began and ended. Parameters change only between `release` and the end of the step's updates:
    backward never sees one change under its hands. copied: parameters may be used only once `settled` is called, with
    copies of what other ranks updated of them.
    """

    def __init__(
        self,
        chunks: Sequence[Chunk],
        slots: Sequence[ParameterSlot],
        apply: Callable[[Chunk], None] | None,
        applied: Callable[[Chunk, float, float], None],
        *,
        copied: bool = False,
    ) -> None:
        self._chunks, self._slots, self._apply, self._applied = len(chunks), slots, apply, applied
        self._copied = copied
        self._version = self._done = 0  # the newest update that was released; chunks done since the start
        self._updated = 0  # chunks that were applied since the start
        place = {id(slot): number for number, slot in enumerate(slots)}
        self._urgency = [min((place[id(slot)] for slot in chunk.slots), default=0) for chunk in chunks]
        self._here: PriorityQueue[tuple[float, int, int, Chunk | None]] = PriorityQueue()
        self._arrivals = [0] * len(chunks)  # of each, since the start: those of the earlier step go first
        self._changed = threading.Condition()
        self._closing = False
        self._error: BaseException | None = None
        self._thread: threading.Thread | None = None
        if apply is not None:
            self._thread = threading.Thread(target=self._run, name="update", daemon=True)
            self._thread.start()

    def arrived(self, chunk: Chunk) -> None:
        """The sum of `chunk` is there."""
        if self._thread is not None:
            self._arrivals[chunk.index] += 1
            self._here.put((self._arrivals[chunk.index], self._urgency[chunk.index], chunk.index, chunk))
        else:
            chunk.form()
            self.settled(chunk)

    def release(self, version: int) -> None:
        """Backward is over: parameters may change, and each waits for its chunks of update `version`."""
        with self._changed:
            if self._thread is not None:
                for slot in self._slots:
                    slot.gate.waits = len(slot.chunks)
            self._version = version
            self._changed.notify_all()

    def wait_for(self, done: Callable[[], bool]) -> None:
        """Return when `done`, which something that arrives makes true. Raises what went wrong instead, if it did."""
        with self._changed:
            self._changed.wait_for(lambda: self._error is not None or done())
            if self._error is not None:
                raise self._error

    def settle(self) -> None:
        """Wait for everything of the steps that were released."""
        if self._done < self._version * self._chunks or self._error is not None:
            self.wait_for(lambda: self._done >= self._version * self._chunks)

    def notify(self, change: Callable[[], None]) -> None:
        """Make a change that somebody may `wait_for`."""
        with self._changed:
            change()
            self._changed.notify_all()

    def fail(self, error: BaseException) -> None:
        """Note that nothing will come any more: whoever waits, now or later, raises `error`."""

        def broken() -> None:
            self._error = self._error or error

        self.notify(broken)

    def settled(self, chunk: Chunk) -> None:
        """Note that all parameters of `chunk` are what was agreed."""
        with self._changed:
            self._done += 1
            for slot in chunk.slots:
                if slot.gate.waits:
                    slot.gate.waits -= 1
            self._changed.notify_all()

    def close(self) -> None:
        """End the thread; harmless when repeated."""
        if self._thread is not None:
            with self._changed:
                self._closing = True
                self._changed.notify_all()
            self._here.put((inf, 0, 0, None))
            self._thread.join(JOIN_S)

    def _run(self) -> None:
        assert self._apply is not None
        try:
            while self._released() and (chunk := self._here.get()[3]) is not None:
                started_s = time.perf_counter()
                chunk.form()
                self._apply(chunk)
                self._updated += 1
                if not self._copied:
                    self.settled(chunk)
                self._applied(chunk, started_s, time.perf_counter())
        except BaseException as error:  # whoever waits must hear of it, whatever it is
            self.fail(error)

    def _released(self) -> bool:
        """Wait until backward is over in the step whose chunks come next; False if it is closed first."""
        with self._changed:
            self._changed.wait_for(lambda: self._closing or self._updated < self._version * self._chunks)
        return not self._closing
