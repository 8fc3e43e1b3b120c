"""Saves that are written beside the steps: a copy of the state in memory, and a thread that writes it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from volary.train.saving.committing import Committing
from volary.train.saving.paced import Pace, paced
from volary.train.state.held import HeldMemory, held, reserve

if TYPE_CHECKING:
    from volary.comm.groups.group import Bulletin
    from volary.run.content import Content
    from volary.train.recording.recorder import Recorder
    from volary.train.state.drafts import Drafts
    from volary.train.state.held import Savable

LOOK_S = 0.2  # between two looks at whether this worker is without a driver
FINISH_S = 30.0  # at most, for the save that is under way when a run fails


class BackgroundSaves:
    """Saves of this rank, one at a time. board: where the threads of all ranks agree, for no other use.

    ended: called in the thread with the step, and why its save failed, empty if it counts.
    """

    def __init__(self, drafts: Drafts, board: Bulletin, recorder: Recorder, ended: Callable[[int, str], None]) -> None:
        self._drafts, self._board, self._recorder, self._ended = drafts, board, recorder, ended
        self._memory = HeldMemory()
        self._touching, self._touched = threading.Thread(), threading.Event()
        self._begun, self._copied_s = 0, 0.0
        self._newest: _Save | None = None

    def prepare(self, files: Iterator[tuple[str, Savable]]) -> None:
        """Take the memory that copies of such files need, beside the steps; what there is none for is left."""
        try:
            for _, content in files:
                reserve(content, self._memory)
        except MemoryError:
            self._memory = HeldMemory()
            return
        self._touching = threading.Thread(target=self._touch, args=(self._memory,), name="checkpoints", daemon=True)
        self._touching.start()

    def hold(self, files: Iterator[tuple[str, Savable]]) -> list[tuple[str, Content]] | None:
        """Copies of these files as they are now, by name; None if there is no memory for them."""
        self.wait()
        self._end_touching()
        self._memory.begin()
        began = time.thread_time()
        try:
            copies = [(name, held(content, self._memory)) for name, content in files]
        except MemoryError:
            self._memory = HeldMemory()
            return None
        self._copied_s = time.thread_time() - began
        return copies

    def begin(self, step: int, files: list[tuple[str, Content]], metric: float | None) -> None:
        """Begin to write what is held; returns at once. All ranks do so."""
        self._begun += 1
        save = self._newest = _Save(self._board.within(str(self._begun)))
        threading.Thread(target=self._carry, args=(save, step, files, metric), name="checkpoints", daemon=True).start()

    def wait(self) -> str:
        """Wait for the save under way; not without a driver, then it never counts. Returns why the newest failed.

        Raises what its state's own code raised.
        """
        return self._wait(lambda: False)

    def finish(self) -> None:
        """The run ends: let the save under way come to its end, for a while; then it never counts."""
        self._end_touching()
        at_most = threading.Event()
        timer = threading.Timer(FINISH_S, at_most.set)
        timer.daemon = True
        timer.start()
        self._wait(at_most.is_set)
        timer.cancel()

    def _wait(self, enough: Callable[[], bool]) -> str:
        if (save := self._newest) is None:
            return ""
        save.hurry.set()
        with self._recorder.waiting():
            while not save.over.wait(LOOK_S) and not self._drafts.alone() and not enough():
                pass
        save.abandon()
        if save.error is not None:
            raise save.error
        return save.failure

    def _touch(self, memory: HeldMemory) -> None:
        memory.touch(Pace(self._touched).pause)

    def _end_touching(self) -> None:
        self._touched.set()
        if self._touching.ident is not None:
            self._touching.join()

    def _carry(self, save: _Save, step: int, files: list[tuple[str, Content]], metric: float | None) -> None:
        pace = Pace(save.hurry, self._copied_s)  # the step that waited for the copies is not to share its core, too
        pace.pause()
        at_pace = [(name, paced(content, pace)) for name, content in files]
        try:
            committing = Committing(self._drafts, save.gather, leads=self._recorder.leads, counting=save.counting)
            save.failure = committing.write(step, lambda: iter(at_pace), metric)
        except _NoBoard as error:
            save.failure = str(error)
        except BaseException as error:
            save.error = error  # what the state's own code raises, the thread that trains is to raise
        finally:
            if not save.abandoned:
                self._ended(step, save.failure)
            save.over.set()


class _NoBoard(Exception):
    """The driver is gone, or does not answer."""


class _Save:
    """One save. hurry: somebody waits for it. over: it counts, or has failed. abandoned: nobody waits for it any more,
    and it must not count.
    """

    def __init__(self, board: Bulletin) -> None:
        self._board, self._gathered = board, 0
        self._counts = threading.Lock()
        self.hurry, self.over, self.abandoned = threading.Event(), threading.Event(), False
        self.failure = "it has not ended"
        self.error: BaseException | None = None

    def gather(self, value: Any) -> list[Any]:
        """Gather what the threads of all ranks say, by rank."""
        self._gathered += 1
        if self._board.size == 1:
            return [value]
        try:
            return self._board.share(str(self._gathered), value)
        except Exception as error:  # a launcher's store raises as it likes
            raise _NoBoard(
                f"the run's driver is gone or does not answer, and workers need it for that: {error}"
            ) from None

    def abandon(self) -> None:
        """From now on it does not come to count."""
        with self._counts:
            self.abandoned = True

    @contextmanager
    def counting(self) -> Iterator[None]:
        """The moment in which it comes to count. Raises OSError once it is abandoned."""
        with self._counts:
            if self.abandoned:
                raise OSError("the run has gone on without it")
            yield
