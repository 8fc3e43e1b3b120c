"""Stochastic weight averaging (Izmailov et al. 2018, arXiv:1803.05407): the mean of weights of a run's last part."""

from __future__ import annotations

from dataclasses import dataclass

from volary.session.values.period import EVERY_EPOCH, Period


@dataclass(frozen=True, kw_only=True)
class Swa:
    """The mean of the weights at the end of each period from `start` on; all count alike."""

    start: Period  # after which it begins, such as 8 epochs
    every: Period = EVERY_EPOCH  # how often weights enter it
    evaluate: bool = False  # evaluations, and so the best checkpoint, are of the average

    def share(self, count: int, newest: int, done: int, steps_per_epoch: int) -> float | None:
        since = max(newest, self.start.in_steps(steps_per_epoch) or 0)
        return 1 / (count + 1) if self.every.ends_within(since, done, steps_per_epoch) else None


AVERAGE = Swa
