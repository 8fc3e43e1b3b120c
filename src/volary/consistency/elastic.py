"""Elastic averaging (EASGD: Zhang, Choromanska and LeCun, NIPS 2015): workers and a centre pull each other.

Each worker updates its own copy. Every period it is pulled to the centre by a part of its distance, and the centre by
as much to it; the centre is the one model, which is evaluated and saved. Over all-reduce all workers pull at once; over
servers, which keep the centre, each when it comes to it (the paper's Algorithm 1).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from volary.consistency._base import Action, Consistency, Push
from volary.consistency.closing.in_turn import InTurnCloser
from volary.errors import SettingError

if TYPE_CHECKING:
    from volary.server.roster.closing import Closer

USUAL = 0.9  # of all workers together, as in the paper


@dataclass(frozen=True, kw_only=True)
class Elastic(Consistency):
    """Each worker keeps a copy of its own near a centre, which all of them pull."""

    rho: float | None = (
        None  # part of a worker's distance to the centre by which each is pulled (default: 0.9 / workers)
    )
    period: int = 1  # steps between two pulls
    threads: int = 1  # of each worker, which update its copy without locks, see `hogwild`
    equal = False
    elastic = True
    steals = True
    in_turn = True

    def __post_init__(self) -> None:
        if self.period < 1:
            raise SettingError(f"period is {self.period}; accepted: a whole number of steps, 1 or more")
        if self.rho is not None and not 0 < self.rho <= 1:
            raise SettingError(f"rho is {self.rho:g}; accepted: above 0, up to 1 / workers")

    def at(self, number: int, step_s: float, begun: int = 0) -> Action:
        """An update of its own; after the last step of a period, its pull on the centre leaves."""
        return Action(updates=True, push=Push.NOTHING if number + 1 < self.period else Push.DIFFERENCE)

    def pull(self, workers: int) -> float:
        """The part of its distance, the paper's alpha = eta rho. Raises SettingError beyond the stable range.

        All workers together move the centre to their mean at the most, which is the paper's beta = workers alpha <= 1.
        """
        if self.rho is not None and self.rho * workers > 1:
            raise SettingError(
                f"rho is {self.rho:g}, and {workers} workers together would pull the centre beyond their mean; "
                f"accepted: above 0, up to {1 / workers:.3g} (1 / workers)"
            )
        return USUAL / workers if self.rho is None else self.rho

    def closer(self, workers: int, first: int = 0, samples: int = 0) -> Closer:
        """Each pull is an update of its own, which its worker sees before it pulls again."""
        return InTurnCloser(first)


CONSISTENCY = Elastic
