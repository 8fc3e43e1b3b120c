"""Updates of a worker's own parameters between what it pushes to servers."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from volary.train.update.whole import WholeUpdate


class LocalUpdate:
    """An update as often as a worker computes a batch; its schedule follows the samples of the run.

    number: of the update that follows so many samples; within a contribution each of this worker's own is one more.
    """

    def __init__(self, update: WholeUpdate, number: Callable[[int], int]) -> None:
        self._update, self._number = update, number
        self._step = 0  # of the schedule

    def begin(self, samples: int) -> None:
        """A contribution begins. samples: that the run learns from before it."""
        self._step = self._number(samples)

    def step(self) -> None:
        """Update by the gradients that backward has made."""
        self._update.apply(self._step)
        self._step += 1

    def forget(self) -> None:
        """Drop the gradients of this worker's parameters."""
        self._update.forget()
