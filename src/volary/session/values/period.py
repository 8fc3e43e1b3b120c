"""A period of time in training: "2 epochs", "500 steps" or "never"."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import ClassVar, Literal

from volary.errors import SettingError
from volary.session.checks import require

ACCEPTED = "'<n> steps', '<n> epochs' (n a whole number, 1 or more) or 'never'"


@dataclass(frozen=True)
class Period:
    """A recurring moment of training, counted in steps or epochs. `Period(0, "never")` does not recur."""

    accepted: ClassVar[str] = ACCEPTED
    count: int
    unit: Literal["steps", "epochs", "never"]

    def __post_init__(self) -> None:
        require(self.unit in ("steps", "epochs", "never"), "unit", repr(self.unit), "'steps', 'epochs', 'never'")
        least, most = (0, 0) if self.unit == "never" else (1, 2**63)
        require(type(self.count) is int and least <= self.count <= most, "count", self.count, "1 or more (never: 0)")

    @classmethod
    def parse(cls, text: str) -> Period:
        """Read "2 epochs", "1 epoch", "500 steps" or "never". Raises SettingError for anything else."""
        if text.strip() == "never":
            return cls(0, "never")
        found = re.fullmatch(r"\s*([1-9][0-9]{0,17})\s+(step|epoch)s?\s*", text, re.ASCII)
        if not found:
            raise SettingError(f"is {text!r}; accepted: {ACCEPTED}")
        return cls(int(found[1]), "steps" if found[2] == "step" else "epochs")

    def in_steps(self, steps_per_epoch: int) -> int | None:
        """The period in steps, or None for never."""
        if self.unit == "never":
            return None
        return self.count * (steps_per_epoch if self.unit == "epochs" else 1)

    def ends(self, steps_done: int, steps_per_epoch: int) -> bool:
        """Whether a period ends when `steps_done` steps are done (1 after the first)."""
        return self.ends_within(steps_done - 1, steps_done, steps_per_epoch)

    def ends_within(self, before: int, after: int, steps_per_epoch: int) -> bool:
        """Whether a period ends once `before` steps were done and until `after` are."""
        every = self.in_steps(steps_per_epoch)
        return every is not None and after // every > before // every

    def passes(self, before: int, after: int, steps_per_epoch: int) -> bool:
        """Whether the first period, counted from the run's begin, ends after `before` steps and until `after`."""
        first = self.in_steps(steps_per_epoch)
        return first is not None and before < first <= after

    def __str__(self) -> str:
        if self.unit == "never":
            return "never"
        return f"{self.count} {self.unit if self.count != 1 else self.unit[:-1]}"


NEVER = Period(0, "never")
EVERY_EPOCH = Period(1, "epochs")
EVERY_20_STEPS = Period(20, "steps")
EVERY_100_STEPS = Period(100, "steps")
