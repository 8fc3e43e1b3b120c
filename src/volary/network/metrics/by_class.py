"""Precision, recall and F1 of each class."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal

from volary.network import tallies
from volary.network.metrics._base import Metric

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True, kw_only=True)
class ByClass(Metric):
    """Three figures for each class that is a target or a prediction: `precision[3]`, `recall[3]`, `f1[3]`."""

    outputs: ClassVar[Literal["classes"]] = "classes"
    higher_is_better: ClassVar[None] = None

    def rows(self, classes: int) -> int:
        return 3 * tallies.few(self.name, classes)

    def sums(self, output: Tensor, target: Tensor, classes: int) -> Tensor:
        return tallies.of_classes(output, target, classes).flatten()

    def figures(self, sums: Sequence[float], count: float) -> dict[str, float]:
        found = [(number, one) for number, one in enumerate(tallies.read(sums)) if tallies.there(one)]
        ratios = {"precision": tallies.precision, "recall": tallies.recall, "f1": tallies.f1}
        return {f"{name}[{number}]": ratio(one) for name, ratio in ratios.items() for number, one in found}


METRIC = ByClass
