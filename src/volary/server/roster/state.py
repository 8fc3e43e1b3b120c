"""The state of a run's roster, as a checkpoint has it, and how a run ends."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct, field

from volary.run.best import Best
from volary.server.batch_methods.lbfgs import LbfgsState
from volary.server.roster.plateau import Plateau
from volary.server.roster.portions import RemainingSamples

Outcome = Literal["finished", "stopped", "thawed"]  # thawed: another attempt goes on, with more that is trained


class RosterState(Struct, frozen=True):
    """The roster's state in a checkpoint. closings, samples: so far. of_loops: workers' own loops save the run.

    method: what directs updates remembers, if something does. contributions: of each worker, how many it had numbered.
    before: those of all others: the steps without servers.
    """

    closings: int = 0
    samples: int = 0
    left: RemainingSamples = RemainingSamples()
    best: Best = field(default_factory=Best)
    plateau: Plateau = field(default_factory=Plateau)
    of_loops: bool = False
    contributions: list[tuple[int, int]] = []
    before: int = 0
    method: LbfgsState | None = None

    @property
    def numbered_before(self) -> int:
        """`before`, also of a checkpoint that does not say what each worker had numbered."""
        return self.before if self.contributions else self.closings
