"""An update of all parameters at once, by the gradients that they have."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from volary.train.recording.recorder import Recorder
    from volary.train.update.update import Update


class WholeUpdate:
    """The session's `update`, from now on of all parameters at once, as a phase of the step.

    None: the loop is the user's, whose optimisers update and clear gradients; by_user says so.
    """

    def __init__(self, update: Update | None, recorder: Recorder) -> None:
        self._update, self._recorder, self.by_user = update, recorder, update is None
        if update is not None:
            update.join()

    def apply(self, step: int, scale: float = 1.0) -> None:
        """Update, after `step` finished steps of the schedule. scale: a factor of the gradients."""
        assert self._update is not None, "the user's loop updates"
        self._recorder.enter("optimizer")
        self._update.prepare(step)
        self._update.apply(scale)

    def forget(self) -> None:
        """Drop the gradients of all parameters."""
        if self._update is not None:
            self._update.clear()
