"""Precision: how many of those that are taken for a class belong to it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal

from volary.network import tallies
from volary.network.metrics._base import Metric

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True, kw_only=True)
class ClassPrecision(Metric):
    """The share of predictions of a class, in [0, 1], that are right."""

    average: Literal["macro", "micro"] = "macro"  # the mean over the classes that there are, or of all together

    outputs: ClassVar[Literal["classes"]] = "classes"
    higher_is_better: ClassVar[bool] = True

    @property
    def name(self) -> str:
        return "precision" if self.average == "macro" else "precision_micro"

    def rows(self, classes: int) -> int:
        return 3 * tallies.known(self.name, classes)

    def sums(self, output: Tensor, target: Tensor, classes: int) -> Tensor:
        return tallies.of_classes(output, target, classes).flatten()

    def figures(self, sums: Sequence[float], count: float) -> dict[str, float]:
        return {self.name: tallies.averaged(tallies.read(sums), tallies.precision, self.average)}


METRIC = ClassPrecision
