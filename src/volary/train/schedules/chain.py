"""Schedules one after the other, each for some steps (torch: SequentialLR)."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import accumulate
from typing import Annotated, Any

from volary.errors import SettingError
from volary.server.roster.plateau import plateau_rule
from volary.session.checks import require
from volary.session.reading.choice import Choice
from volary.session.values.period import Period
from volary.train.schedules._base import require_warmup, warmed


@dataclass(frozen=True, kw_only=True)
class ScheduleChain:
    """Each schedule begins at its own step 0, with its part of the run as the run's length."""

    parts: tuple[Annotated[Any, Choice("volary.train.schedules")], ...]  # the schedules, two or more
    steps: tuple[int, ...]  # how long each but the last holds
    warmup: int | Period = 0  # steps, or as `2 epochs`, over which the learning rate first grows linearly

    def __post_init__(self) -> None:
        require(len(self.parts) >= 2, "parts", f"a list of {len(self.parts)}", "two schedules or more")
        if any(plateau_rule(one) for one in self.parts):
            raise SettingError(
                "parts has plateau, which goes by the evaluations of the whole run; accepted: other schedules, or "
                "schedule=plateau, which has a warmup of its own"
            )
        right = len(self.steps) == len(self.parts) - 1 and all(one >= 1 for one in self.steps)
        accepted = f"a length of 1 step or more for each part but the last ({len(self.parts) - 1})"
        require(right, "steps", list(self.steps), accepted)
        require_warmup(self.warmup)

    def factor(self, step: int, steps: int) -> float:
        ends = list(accumulate(self.steps))
        number = sum(end <= step for end in ends)
        begun = ends[number - 1] if number else 0
        length = self.steps[number] if number < len(self.steps) else max(1, steps - begun)
        return warmed(step, self.warmup, self.parts[number].factor(step - begun, length))


SCHEDULE = ScheduleChain
