"""Writes a worker's files of checkpoints over servers, which write network and optimiser: the roster says when."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING, Any

from volary.errors import RunError
from volary.run.checkpoints import SHARED, Checkpoints
from volary.train.member.remote_directory import bring, writer
from volary.train.saving.committing import write_files
from volary.train.served.thawing import thaw
from volary.train.state.rank_state import rank_files
from volary.train.state.stateful import CheckpointParts

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from volary.run.checkpoints import Manifest
    from volary.train.member.process import Membership
    from volary.train.model import Model


class RosterSaver:
    """Saves for worker `member` of `size`. ask: has the roster save the run after this step, and waits for it."""

    def __init__(self, member: Membership, size: int, ask: Callable[[], None] = lambda: None) -> None:
        self.rank, self.size = member.place.rank, size
        self._member, self._ask = member, ask
        self._checkpoints = Checkpoints(member.directory.checkpoints)
        self._write = writer(member.remote, self._checkpoints)
        self._saving: CheckpointParts | None = None

    def find(self, *, whole: bool) -> tuple[Manifest, Path] | None:
        """The newest checkpoint, if the user's loop has saved it, and its folder; the driver has looked at its files.

        A worker that joins later begins anew. Raises RunError.
        """
        if self.rank >= self.size or (step := self._newest_step()) is None:
            return None
        manifest = bring(self._member.remote, self._checkpoints, step)
        return (manifest, self._checkpoints.path(step)) if SHARED in manifest.files else None

    def save(self, parts: CheckpointParts) -> None:
        """Have the run saved as of the newest update, with `parts`, once all who keep step are here.

        The roster reports it. Raises what `ask` raises.
        """
        self._saving = parts
        try:
            self._ask()
        finally:
            self._saving = None

    def write(self, step: int, state: dict[str, Any], first: bool) -> dict[str, str]:
        """This worker's files of the checkpoint of `step`, checksums by name. Raises OSError. From any thread.

        state: as of what the checkpoint is of. first: it writes what all workers have alike, too.
        """
        saving = self._saving or CheckpointParts(dict, tuple)  # asked once: the thread that trains may end its save
        parts = CheckpointParts(lambda: {**saving.own(), **state}, saving.alike)
        return write_files(self._write, step, rank_files(self.rank, parts, first=first))

    def thaw(self, model: Model) -> tuple[int, list[str]]:
        """Let the network train what is thawed by now: the step of the newest checkpoint, and these parameters."""
        step = self._newest_step()
        return step or 0, thaw(model, step, self._member.remote, self._checkpoints)

    def _newest_step(self) -> int | None:
        if self._member.remote is None or self._checkpoints.in_store:
            return max(self._checkpoints.steps(), default=None)
        try:
            with closing(self._member.files()) as client:
                return client.take_up().step
        except OSError as error:
            raise RunError(str(error)) from None
