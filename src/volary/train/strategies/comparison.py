"""Two tables of ways in turn: what a step really takes with each, and which of them stays."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from volary.exchange.choice.tables import CLEARLY
from volary.train.strategies.profile import WARM_STEPS

SETTLING_STEPS = WARM_STEPS + 1  # of each: until the order in which its chunks travel is found
COUNTED_STEPS = 5
EACH = SETTLING_STEPS + COUNTED_STEPS


@dataclass
class Comparison:
    """A first table has its steps, then its rival. ways: by parameter, of both. step_s: of the steps so far.

    rows: of the rival's table, for people.
    It is plain values and goes into checkpoints, so that a resumed run compares on.
    """

    ways: Sequence[dict[str, str]]
    rows: Sequence[Sequence[Any]]
    step_s: list[float] = field(default_factory=list)

    def add(self, step_s: float) -> None:
        """A step is over."""
        self.step_s.append(step_s)

    @property
    def turns(self) -> bool:
        """Whether it is the rival's turn from now on."""
        return len(self.step_s) == EACH

    @property
    def over(self) -> bool:
        """Whether both had their steps."""
        return len(self.step_s) == 2 * EACH

    def medians_s(self) -> list[float]:
        """Of both tables, once it is over."""
        return [statistics.median(self.step_s[end - COUNTED_STEPS : end]) for end in (EACH, 2 * EACH)]

    def better(self) -> int:
        """The place in `ways` of what stays: the rival must be clearly quicker."""
        first_s, rival_s = self.medians_s()
        return int(rival_s < CLEARLY * first_s)

    def state(self) -> dict[str, Any]:
        """The plain values of it that a checkpoint keeps."""
        return {"ways": list(self.ways), "rows": list(self.rows), "step_s": list(self.step_s)}
