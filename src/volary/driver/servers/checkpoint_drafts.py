"""Checkpoints of a run with parameter servers: they write their files, here these become one that counts."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future, wait
from typing import Any

import msgspec

from volary.errors import RunError
from volary.run.checkpoints import ROSTER, Checkpoints, read
from volary.run.database.journal import Journal
from volary.run.database.kept_contributions import KeptContributions
from volary.server.roster.state import RosterState
from volary.session.spec import Checkpoint, LoopCheckpoint

QUICK_S = 0.02  # a folder's draft counts that soon, as a rule: nothing waits for the roster's next look
CLOSE_S = 2.0  # that the end of a run waits for what is under way


class CheckpointDrafts:
    """Opens drafts of `checkpoints` and commits them, for the roster, in the background: where they are may be slow.

    What cannot be raises OSError from its future; then older ones stay. newest: what there is to say of the last one
    that was committed.
    """

    def __init__(self, checkpoints: Checkpoints, settings: Checkpoint | LoopCheckpoint, servers: int) -> None:
        self.newest: dict[str, Any] = {}
        self._checkpoints, self._settings, self._servers = checkpoints, settings, servers
        self._began_at = 0.0
        self._last: threading.Thread | None = None
        self._closed = False

    def begin(self, step: int) -> Future[None]:
        self._began_at = time.perf_counter()
        return self._in_background(lambda: self._checkpoints.begin(step))

    def give_up(self, step: int) -> None:
        """Leave nothing of the draft of `step`."""
        self._in_background(lambda: self._checkpoints.give_up(step))

    def commit(
        self, step: int, files: Mapping[str, str], state: Mapping[str, Any], metric: float | None
    ) -> Future[None]:
        """Let the draft of `step` count. files: checksums of the servers. state: of the roster. metric: if best."""
        return self._in_background(lambda: self._commit(step, files, state, metric))

    def close(self) -> None:
        """Begin nothing more, and let nothing count any more that does not within CLOSE_S."""
        if self._last is not None:
            self._last.join(CLOSE_S)
        self._closed = True

    def _commit(self, step: int, files: Mapping[str, str], state: Mapping[str, Any], metric: float | None) -> None:
        own = {ROSTER: self._checkpoints.write(step, ROSTER, msgspec.json.encode(state))}
        if self._closed:
            raise OSError("the run has ended before its checkpoint was whole")
        path = self._checkpoints.commit(step, self._servers, dict(files) | own, metric)
        self.newest = {"path": str(path), "seconds": time.perf_counter() - self._began_at}
        if not self._closed:
            self._checkpoints.keep(self._settings.keep_last, keep_best=self._settings.keep_best)

    def _in_background(self, work: Callable[[], None]) -> Future[None]:
        """Do `work` in a thread, once earlier work is done. Quick work is done when this returns."""
        done: Future[None] = Future()
        before = self._last

        def carry_out() -> None:
            if before is not None:
                before.join()
            if self._closed:
                return
            try:
                work()
            except Exception as problem:
                done.set_exception(problem)
            else:
                done.set_result(None)

        thread = threading.Thread(target=carry_out, name="checkpoints", daemon=True)  # a store may hang for ever
        try:
            thread.start()
        except RuntimeError as problem:  # the system gives no thread now
            done.set_exception(OSError(str(problem)))
        else:
            self._last = thread
            wait([done], QUICK_S)
        return done


def contributions_in(checkpoints: Checkpoints) -> KeptContributions | None:
    """The contributions that the newest checkpoint has; None if there is none, or it is damaged."""
    try:
        if not (steps := checkpoints.steps()):
            return None
        manifest = checkpoints.bring(steps[-1], lambda name: name == ROSTER)
        state = msgspec.json.decode(read(checkpoints.path(steps[-1]), manifest, ROSTER), type=RosterState)
    except (RunError, OSError, msgspec.MsgspecError):  # `restored` says so
        return None
    return KeptContributions(dict(state.contributions), state.numbered_before)


def restored(checkpoints: Checkpoints, journal: Journal) -> tuple[int, dict[str, Any]] | None:
    """The step of the newest whole checkpoint and the roster's state in it, if the run has one.

    Damaged ones are reported and set aside. Raises RunError if all are damaged.
    """
    manifest, warnings = checkpoints.take_up()
    for text in warnings:
        journal.event("warning", text=text)
    if manifest is None:
        return None
    if manifest.step:  # else it is what the run begins with
        journal.event("resumed", None, manifest.step, from_step=manifest.step)
    return manifest.step, msgspec.json.decode(read(checkpoints.path(manifest.step), manifest, ROSTER))
