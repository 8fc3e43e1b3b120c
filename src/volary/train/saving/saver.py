"""Writes a run's checkpoints, of all ranks of a group together, and finds the newest."""

from __future__ import annotations

import time
from functools import partial
from typing import TYPE_CHECKING, Any

from volary.comm.groups.blocking import gather_plain
from volary.comm.groups.leading import from_leader
from volary.errors import NotSaved
from volary.run.checkpoints import Checkpoints
from volary.run.disk import TRY_AGAIN_AFTER_S
from volary.train.saving.background_saves import BackgroundSaves
from volary.train.saving.committing import Committing
from volary.train.state.drafts import DirectoryDrafts, RemoteDrafts
from volary.train.state.rank_state import rank_files

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
    apart = any(group.bulletin.share("whether its directory is elsewhere", member.remote is not None))

    def alone() -> bool:
        return bool(pulse.lost)

    if apart and not checkpoints.in_store:
        return RemoteDrafts(member, alone)
    return DirectoryDrafts(checkpoints, recorder, settings.keep_last, keep_best=settings.keep_best, alone=alone)


class GroupSaver:
    """Saves for the ranks of `group`, to `drafts`. gather: returns what all ranks say, by rank; a collective call;
    None: over the group's own connections.

    begun: the step of the newest checkpoint that this attempt has begun or continues from. saved: of the newest that
    counts. 0: there is none.
    """

    def __init__(
        self, drafts: Drafts, group: Group, recorder: Recorder, gather: Callable[[Any], list[Any]] | None = None
    ) -> None:
        self.rank, self.size, self.begun, self.saved = group.rank, group.size, 0, 0
        self._drafts, self._group, self._recorder = drafts, group, recorder
        self._gather = gather or partial(gather_plain, group=group)
        self.bulletin = group.bulletin
        self._committing = Committing(drafts, self._gathered, leads=group.leads)
        self._background = BackgroundSaves(drafts, group.bulletin.beside("checkpoints"), recorder, self._ended)

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
        self.begun = self.saved = step
        return self._drafts.have(step, whole=whole or self._group.leads), self._drafts.checkpoints.path(step)

    def settle(self) -> str:
        """Wait until what was begun counts. Returns why it does not, the same on all ranks. A collective call."""
        return next(filter(None, self._gathered(self._background.wait())), "")

    def wait(self) -> str:
        """As `settle`, of this rank alone, which only writes together with the others."""
        return self._background.wait()

    def prepare(self, parts: CheckpointParts) -> None:
        """Take the memory that a save of these parts needs, beside the steps that come before it."""
        self._background.prepare(rank_files(self.rank, parts, first=self._group.leads))

    def save(self, parts: CheckpointParts, metric: float | None = None, *, last: bool = False) -> None:
        """Write the checkpoint of this step; see `volary.train.coordinator.Saver`. A collective call.

        Rank 0 writes what all ranks have alike. It is written beside the steps that follow if all ranks have memory for
        a copy of what they write, and is not the last. Raises NotSaved.
        """
        step, files = self._recorder.step, partial(rank_files, self.rank, parts, first=self._group.leads)
        self.begun = step
        if last:
            self._background.wait()
            self._write_last(step, partial(self._committing.write, step, files, metric))
            return
        held = self._background.hold(files())
        if all(self._gathered(held is not None and not self._drafts.alone())):
            assert held is not None
            self._background.begin(step, held, metric)
        else:
            del held
            self._ended(step, self._committing.write(step, files, metric))
            self._recorder.hand_over()

    def finish(self) -> None:
        """The loop is over, for whatever reason. Wait until what was begun counts, for a while if it does not."""
        self._background.finish()

    def _write_last(self, step: int, write: Callable[[], str]) -> None:
        failure = write()
        for wait_s in TRY_AGAIN_AFTER_S:
            if failure:
                self._tell(step, f"{failure}; it is the last one, and tried again in {wait_s:g} s")
                self._recorder.hand_over()
                time.sleep(wait_s)
                failure = write()
        if failure:
            kept = self._committing.newest()
            raise NotSaved(
                f"the last checkpoint, of step {step}, could not be written: {failure}; kept: "
                f"{'none yet' if kept is None else f'step {kept}'}"
            )
        self.saved = step

    def _ended(self, step: int, failure: str) -> None:
        """A save has ended; told from any thread."""
        if failure:
            self._tell(step, f"{failure}; training goes on, older checkpoints stay")
        else:
            self.saved = step

    def _gathered(self, value: Any) -> list[Any]:
        """Gather what all ranks say, by rank; meanwhile the others are those that are late."""
        with self._recorder.waiting():
            return self._gather(value)

    def _tell(self, step: int, reason: str) -> None:
        if self._group.leads:
            self._recorder.event_of(step, "checkpoint_failed", {"reason": reason})
