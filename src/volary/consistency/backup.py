"""Backup workers (Chen et al., arXiv:1604.00981): a step waits for the first k workers, and not for the others.

With `epoch` as in Project Adam (Chilimbi et al., OSDI 2014): an epoch ends once that share of workers has finished it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from volary.consistency._base import Consistency
from volary.consistency.closing.alone import ImmediateCloser
from volary.consistency.closing.first import FirstInCloser
from volary.errors import SettingError

if TYPE_CHECKING:
    from volary.server.roster.closing import Closer


@dataclass(frozen=True, kw_only=True)
class Backup(Consistency):
    """Nobody waits for the slowest. What comes too late is dropped and counted, and its samples are learnt again."""

    k: int | None = None  # contributions that close a step (default: of all workers but one, and 1 of a single worker)
    deadline: Literal["auto"] | float | None = None  # seconds after which fewer do; auto: 1.5 times what k usually take
    epoch: float | None = None  # the other form: an epoch ends once this share of workers has finished its part
    needs_server = True
    elastic = True

    def __post_init__(self) -> None:
        if self.k is not None and self.k < 1:
            raise SettingError(f"k is {self.k}; accepted: 1 up to the number of workers")
        if isinstance(self.deadline, float) and self.deadline <= 0:
            raise SettingError(f"deadline is {self.deadline:g}; accepted: 'auto', or seconds above 0")
        if self.epoch is not None and not 0 < self.epoch <= 1:
            raise SettingError(f"epoch is {self.epoch:g}; accepted: a share of the workers, above 0, up to 1")
        if self.epoch is not None and (self.k is not None or self.deadline is not None):
            raise SettingError(
                "epoch is given with k or deadline, which are about steps; accepted: one form or the other"
            )

    @property
    def drops(self) -> bool:
        """Not in the epoch form, where each contribution is an update."""
        return self.epoch is None

    @property
    def steals(self) -> bool:
        """Not in the epoch form, where each worker has a part of its own."""
        return self.epoch is None

    @property
    def epoch_share(self) -> float | None:
        """The share of workers that ends an epoch when they have finished."""
        return self.epoch

    @property
    def asks_ahead(self) -> bool:
        """The next read is of one update, which is not made yet; in the epoch form it is of whatever is there."""
        return self.epoch is not None

    @property
    def has_common_step(self) -> bool:
        """Not in the epoch form, where each contribution is an update of its own."""
        return self.epoch is None

    def closer(self, workers: int, first: int = 0, samples: int = 0) -> Closer:
        """A step is an update once enough contributions to it are held. Raises SettingError if k is above `workers`."""
        if self.k is not None and self.k > workers:
            raise SettingError(f"k is {self.k}; accepted: 1 to {workers}, the number of workers")
        if self.epoch is not None:
            return ImmediateCloser(first)
        seconds = self.deadline if isinstance(self.deadline, float) else None
        return FirstInCloser(first, self.k, seconds, measured=self.deadline == "auto")


CONSISTENCY = Backup
