"""Evaluations that get no better, and what the learning rate is lowered by for that (torch: ReduceLROnPlateau)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from math import isnan, nan
from typing import Any, Literal, Protocol, runtime_checkable


@runtime_checkable
class PlateauRule(Protocol):
    """Settings of a schedule that goes by evaluations."""

    @property
    def by(self) -> Literal["metric", "loss"]:
        """The value that is compared: the metric that decides what is best, or the loss."""
        ...

    @property
    def gamma(self) -> float:
        """The factor that the rate is multiplied by."""
        ...

    @property
    def patience(self) -> int:
        """Evaluations in a row without a better figure that change nothing yet."""
        ...

    @property
    def threshold(self) -> float:
        """How much better a figure has to be, as a share of the best."""
        ...

    @property
    def cooldown(self) -> int:
        """Evaluations after a change that count for nothing."""
        ...

    @property
    def floor(self) -> float:
        """The least factor of the rate."""
        ...


def plateau_rule(schedule: object) -> PlateauRule | None:
    """The schedule itself, if it goes by evaluations."""
    return schedule if isinstance(schedule, PlateauRule) else None


@dataclass
class Plateau:
    """The learning rate as evaluations have changed it so far: all workers, servers and the roster have the same.

    factor: of the rate. value: the best figure; bad: evaluations since then; cooling: those to come that do not count.
    """

    factor: float = 1.0
    value: float | None = None
    bad: int = 0
    cooling: int = 0

    def judge(self, rule: PlateauRule, figures: Mapping[str, float], metric: str, *, higher_is_better: bool) -> bool:
        """Take note of an evaluation; whether it changes the factor. metric: the figure that decides what is best."""
        value, sign = figures[metric], 1 if higher_is_better else -1
        if rule.by == "loss":
            value, sign = figures.get("loss", nan), -1
        best = self.value
        if not isnan(value) and (best is None or sign * value > sign * best * (1 + sign * rule.threshold)):
            self.value, self.bad = value, 0
        else:
            self.bad += 1
        if self.cooling:
            self.cooling, self.bad = self.cooling - 1, 0
        if self.bad <= rule.patience:
            return False
        was, self.factor = self.factor, max(rule.floor, self.factor * rule.gamma)
        self.bad, self.cooling = 0, rule.cooldown
        return self.factor != was

    def state(self) -> dict[str, Any]:
        """The plain values of it that a checkpoint keeps."""
        return asdict(self)

    def restore(self, state: dict[str, Any]) -> None:
        """Go on from a checkpoint's state."""
        for name, value in state.items():
            setattr(self, name, value)
