"""The best evaluation of a run so far, as checkpoints keep it; and evaluations that are no numbers."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any


def not_numbers(figures: Mapping[str, float]) -> str:
    """A warning about figures of an evaluation that are NaN or infinite; empty if all are numbers."""
    bad = [f"{name} {value}" for name, value in figures.items() if not math.isfinite(value)]
    return f"the evaluation gave {', '.join(bad)}: look at the validation data and at the outputs for it" if bad else ""


@dataclass
class Best:
    """The best evaluation's value and step. waited: evaluations since then."""

    value: float | None = None
    step: int = 0
    waited: int = 0

    def judge(self, value: float, step: int, *, higher_is_better: bool) -> bool:
        """Take note of an evaluation; whether it is the best so far."""
        sign = 1 if higher_is_better else -1
        better = not math.isnan(value) and (self.value is None or sign * value > sign * self.value)
        if better:
            self.value, self.step, self.waited = value, step, 0
        else:
            self.waited += 1
        return better

    def state(self) -> dict[str, Any]:
        """The plain values of it that a checkpoint keeps."""
        return asdict(self)

    def restore(self, state: dict[str, Any]) -> None:
        """Go on from a checkpoint's state."""
        self.value, self.step, self.waited = state["value"], state["step"], state["waited"]
