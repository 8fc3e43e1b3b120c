"""The confusion matrix: how many targets of each class are taken for which."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal

from volary.network import tallies
from volary.network.metrics._base import Metric

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True, kw_only=True)
class ConfusionMatrix(Metric):
    """Counts, `confusion[3,5]` of those of class 3 that are taken for class 5."""

    outputs: ClassVar[Literal["classes"]] = "classes"
    higher_is_better: ClassVar[None] = None

    def rows(self, classes: int) -> int:
        return tallies.few(self.name, classes) ** 2

    def sums(self, output: Tensor, target: Tensor, classes: int) -> Tensor:
        return tallies.matrix(output, target, classes).flatten()

    def figures(self, sums: Sequence[float], count: float) -> dict[str, float]:
        classes = round(len(sums) ** 0.5)
        return {f"{self.name}[{place // classes},{place % classes}]": found for place, found in enumerate(sums)}


METRIC = ConfusionMatrix
