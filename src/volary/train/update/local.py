"""Updates of a worker's own parameters between what it pushes to servers."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from volary.train.recording.recorder import Recorder
    from volary.train.update.update import Update


class LocalUpdate:
    """The session's update, as often as a worker computes a batch; its schedule follows the samples of the run."""

    def __init__(self, update: Update, batch_size: int, recorder: Recorder) -> None:
        self._update, self._batch_size, self._recorder = update, batch_size, recorder
        self._step = 0  # of the schedule

    def begin(self, samples: int) -> None:
        """A contribution begins. samples: that the run has learnt from."""
        self._step = samples // self._batch_size

    def step(self) -> None:
        """Update by the gradients that backward has made."""
        self._recorder.enter("optimizer")
        self._update.prepare(self._step)
        self._update.apply()
        self._step += 1

    def forget(self) -> None:
        """Let go of gradients."""
        self._update.clear()
