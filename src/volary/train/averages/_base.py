"""The protocol of averages of weights: how much of the newest values enters one, and when."""

from __future__ import annotations

from typing import Protocol


class Average(Protocol):
    """Is asked for each value after each update; whoever updates it keeps its average.

    evaluate: evaluations of a run, and so its best checkpoint, are of the average.
    """

    @property
    def evaluate(self) -> bool:
        """Whether evaluations are of the average."""
        ...

    def share(self, count: int, newest: int, done: int, steps_per_epoch: int) -> float | None:
        """The part of the average's next value that is new; None: it stays as it is after this update.

        count: how often values have entered it; the first do so whole. done: updates of the run, this one included,
        which may be of several steps at once, or one of several in a step. newest: the same when values entered last.
        """
        ...
