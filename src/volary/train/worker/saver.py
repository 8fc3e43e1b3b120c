"""Writes a run's checkpoints, of all ranks of a group together, and finds the newest."""

from __future__ import annotations

import time
from functools import partial
from typing import TYPE_CHECKING, Any

from volary.comm.groups.blocking import gather_plain
from volary.comm.groups.leading import from_leader
from volary.errors import NotSaved
from volary.run.checkpoint_files.store import CheckpointsInStore
from volary.run.checkpoints import Checkpoints
from volary.run.disk import TRY_AGAIN_AFTER_S
from volary.train.state.committing import Committing
from volary.train.state.drafts import LocalDrafts, RemoteDrafts
from volary.train.state.rank_state import rank_files
from volary.train.state.store_drafts import StoreDrafts

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from volary.comm.groups.group import Group
    from volary.run.checkpoints import Manifest
    from volary.session.spec import Checkpoint, LoopCheckpoint
    from volary.train.member.process import Membership
    from volary.train.member.pulse import Pulse
    from volary.train.recording.recorder import Recorder
    from volary.train.state.drafts import Drafts
    from volary.train.state.stateful import CheckpointParts


def drafts_of(
    member: Membership, group: Group, recorder: Recorder, pulse: Pulse, settings: Checkpoint | LoopCheckpoint
) -> Drafts:
    """Return where the ranks of `group` write checkpoints: each its part to a store; else through the driver if any of
    them does not see the run's directory. A collective call.
    """
    checkpoints = Checkpoints(member.directory.checkpoints)
    apart = any(gather_plain(member.remote is not None, group))
    if apart and not checkpoints.in_store:
        return RemoteDrafts(member)
    local = LocalDrafts(checkpoints, recorder, settings.keep_last, keep_best=settings.keep_best)
    if isinstance(checkpoints.files, CheckpointsInStore):
        board = group.bulletin.beside("checkpoints")
        return StoreDrafts(local, checkpoints.files, recorder, board, lambda: bool(pulse.lost))
    return local


class GroupSaver:
    """Saves for the ranks of `group`, to `drafts`. gather: returns what all ranks say, by rank; a collective call.

    saved: the step of the newest checkpoint that this attempt has written or continues from; 0: there is none.
    """

    def __init__(self, drafts: Drafts, group: Group, recorder: Recorder, gather: Callable[[Any], list[Any]]) -> None:
        self.rank, self.size, self.saved = group.rank, group.size, 0
        self._drafts, self._group, self._recorder = drafts, group, recorder
        self.bulletin = group.bulletin
        self._committing = Committing(drafts, recorder, gather)

    def find(self, *, whole: bool) -> tuple[Manifest, Path] | None:
        """The newest checkpoint that is not damaged, and the folder of its files; the same on every rank.

        whole: each rank has all its files, not rank 0 alone. Says which were damaged. Raises RunError if all are.
        """

        def newest() -> int | None:
            found, warnings = self._drafts.take_up()
            for text in warnings:
                self._recorder.event("warning", text=text)
            return found

        step = from_leader(self.bulletin, "resume", newest)
        if step is None:
            return None
        self.saved = step
        return self._drafts.have(step, whole=whole or self._group.leads), self._drafts.checkpoints.path(step)

    def settle(self) -> str:
        """Wait until what was written counts. Returns why it does not, the same on all ranks. A collective call."""
        return self._committing.settle()

    def save(self, parts: CheckpointParts, metric: float | None = None, *, last: bool = False) -> None:
        """Write the checkpoint of this step; see `volary.train.coordinator.Saver`. A collective call.

        Rank 0 writes what all ranks have alike. Raises NotSaved.
        """
        step, files = self._recorder.step, partial(rank_files, self.rank, parts, first=self._group.leads)
        write = partial(self._committing.write, step, files, metric, last=last)
        failure = write()
        for wait_s in TRY_AGAIN_AFTER_S if last else ():
            if failure:
                self._tell(f"{failure}; it is the last one, and tried again in {wait_s:g} s")
                time.sleep(wait_s)
                failure = write()
        if failure and last:
            kept = self._committing.newest()
            raise NotSaved(
                f"the last checkpoint, of step {step}, could not be written: {failure}; kept: "
                f"{'none yet' if kept is None else f'step {kept}'}"
            )
        if failure:
            self._tell(f"{failure}; training goes on, older checkpoints stay")
        else:
            self.saved = step

    def _tell(self, reason: str) -> None:
        if self._group.leads:
            self._recorder.event("checkpoint_failed", reason=reason)
            self._recorder.hand_over()
