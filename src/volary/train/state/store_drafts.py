"""Drafts of a checkpoint in a store: a thread of each rank uploads what it has written, while training continues."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from volary.comm.groups.leading import from_leader
from volary.errors import VolaryError
from volary.run.checkpoint_files.store import CheckpointsInStore, write_here
from volary.sharding.groups import leads

if TYPE_CHECKING:
    from pathlib import Path

    from volary.comm.groups.group import Bulletin
    from volary.run.checkpoints import Manifest
    from volary.run.content import Content
    from volary.train.recording.recorder import Recorder
    from volary.train.state.drafts import LocalDrafts

LOOK_S = 0.2  # between two looks at whether this worker is without a driver


class StoreDrafts:
    """Files on this machine until they are in the store; a checkpoint counts once those of all ranks are there.

    A save waits for the one before. The last one, which no driver may be left for, is made in the foreground.
    foreground: the drafts that do so. board: where the threads of the ranks tell each other what is there, for no other
    use. alone: whether this worker is without a driver, and so without that board.
    """

    def __init__(
        self,
        foreground: LocalDrafts,
        store: CheckpointsInStore,
        recorder: Recorder,
        board: Bulletin,
        alone: Callable[[], bool],
    ) -> None:
        self.checkpoints = foreground.checkpoints
        self._foreground, self._store, self._recorder = foreground, store, recorder
        self._board, self._alone = board, alone
        self._folder = foreground.checkpoints.folder / f".upload-of-rank-{board.rank}"
        self._saves = 0
        self._newest: _Save | None = None
        self._counting = threading.Lock()

    @property
    def newest(self) -> int | None:
        """The step of the checkpoint that came to count last."""
        return self._foreground.newest

    def at_once(self) -> LocalDrafts:
        """Return the drafts for a run's last save, once the save under way counts, or has failed and reported that."""
        self._wait()
        return self._foreground

    def begin(self, step: int) -> None:
        """Room on this machine, when the files of the checkpoint before have left it."""
        self._wait()
        self._saves += 1
        shutil.rmtree(self._folder, ignore_errors=True)
        self._folder.mkdir(parents=True)

    def write(self, step: int, name: str, content: Content) -> str:
        """Write it on this machine, for now."""
        return write_here(self._folder / name, content)

    def commit(self, step: int, world_size: int, files: Mapping[str, str], metric: float | None) -> None:
        """Begin to upload; returns at once."""
        save = _Save(
            step, sorted(self._folder.iterdir()), lambda: self._foreground.commit(step, world_size, files, metric)
        )
        board = self._board.within(str(self._saves))
        self._newest = save
        threading.Thread(target=self._carry, args=(save, board), name="checkpoints", daemon=True).start()

    def give_up(self, step: int) -> None:
        """Do nothing: nothing is in the store yet."""

    def settle(self) -> None:
        """Wait for what is under way."""
        self._wait()
        if self._newest is not None and self._newest.failure:
            raise OSError(self._newest.failure)

    def take_up(self) -> tuple[int | None, list[str]]:
        return self._foreground.take_up()

    def have(self, step: int, *, whole: bool) -> Manifest:
        return self._foreground.have(step, whole=whole)

    def close(self) -> None:
        """Abandon a save that is under way: its draft never counts."""
        if self._newest is not None:
            self._newest.abandoned = True
        shutil.rmtree(self._folder, ignore_errors=True)

    def _wait(self) -> None:
        """Wait for this rank's files, and as rank 0 for all ranks'; not without a driver, over which they report."""
        if (save := self._newest) is None:
            return
        while not save.sent.wait(LOOK_S) and not self._alone():
            pass
        with self._recorder.waiting():
            while not save.over.wait(LOOK_S) and not self._alone():
                pass
        with self._counting:
            save.abandoned = True  # unless it is over

    def _carry(self, save: _Save, board: Bulletin) -> None:
        """Do all of a save, in a thread."""
        try:
            refused = from_leader(board, "begun", lambda: _failure(lambda: self._foreground.begin(save.step)))
            failure = refused or _failure(lambda: self._send(save))
            save.sent.set()
            board.post("sent", failure)
            for rank in range(1, board.size if leads(board.rank) and not refused else 0):
                theirs = board.read("sent", rank)
                failure = failure or (theirs and f"rank {rank}: {theirs}")
            save.failure = failure or (self._count(save) if leads(board.rank) else "")
        except VolaryError as error:
            save.failure = str(error)  # the driver is gone, and with it the board
        finally:
            if save.failure and leads(board.rank) and not save.abandoned:
                self._tell(save)
            save.sent.set()
            save.over.set()

    def _send(self, save: _Save) -> None:
        for path in save.paths:
            self._store.upload(save.step, path)
            path.unlink()
            self._recorder.moved()

    def _count(self, save: _Save) -> str:
        with self._counting:
            return "" if save.abandoned else _failure(save.count)

    def _tell(self, save: _Save) -> None:
        self._foreground.give_up(save.step)
        reason = f"step {save.step}: {save.failure}; training goes on, older checkpoints stay"
        self._recorder.event("checkpoint_failed", reason=reason)


@dataclass
class _Save:
    """paths: of its files here. count: lets it count. sent: nothing of this rank's is to be sent any more. over: nor of
    the others', and it counts unless there is a `failure`. abandoned: nobody waits for it, and it must not count.
    """

    step: int
    paths: list[Path]
    count: Callable[[], None]
    failure: str = "its upload has not ended"
    abandoned: bool = False
    sent: threading.Event = field(default_factory=threading.Event)
    over: threading.Event = field(default_factory=threading.Event)


def _failure(work: Callable[[], object]) -> str:
    try:
        work()
    except OSError as error:
        return str(error) or type(error).__name__
    return ""
