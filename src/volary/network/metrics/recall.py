"""Recall: how many of those of a class are taken for it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal

from volary.network import tallies
from volary.network.metrics._base import Metric

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True, kw_only=True)
class ClassRecall(Metric):
    """The share of the targets of a class, in [0, 1], that are found."""

    average: Literal["macro", "micro"] = "macro"  # the mean over the classes that there are, or of all together

    outputs: ClassVar[Literal["classes"]] = "classes"
    higher_is_better: ClassVar[bool] = True

    @property
    def name(self) -> str:
        return "recall" if self.average == "macro" else "recall_micro"

    def rows(self, classes: int) -> int:
        return 3 * tallies.known(self.name, classes)

    def sums(self, output: Tensor, target: Tensor, classes: int) -> Tensor:
        return tallies.of_classes(output, target, classes).flatten()

    def figures(self, sums: Sequence[float], count: float) -> dict[str, float]:
        return {self.name: tallies.averaged(tallies.read(sums), tallies.recall, self.average)}


METRIC = ClassRecall
