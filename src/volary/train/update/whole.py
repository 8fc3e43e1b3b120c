"""An update of all parameters at once, by the gradients that they have."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from volary.train.recording.recorder import Recorder
    from volary.train.update.update import Update


class WholeUpdate:
    """The session's `update`, from now on of all parameters at once, as a phase of the step."""

    def __init__(self, update: Update, recorder: Recorder) -> None:
        self._update, self._recorder = update, recorder
        update.join()

    def apply(self, step: int, scale: float = 1.0) -> None:
        """Update, after `step` finished steps of the schedule. scale: a factor of the gradients."""
        self._recorder.enter("optimizer")
        self._update.prepare(step)
        self._update.apply(scale)

    def forget(self) -> None:
        """Drop the gradients of all parameters."""
        self._update.clear()
