"""ROC AUC: how often a target of a class has a higher score for it than one of another class (Fawcett 2006)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import nan
from typing import TYPE_CHECKING, ClassVar, Literal

from volary.errors import SettingError
from volary.network import tallies
from volary.network.checks import at_least
from volary.network.metrics._base import Metric

if TYPE_CHECKING:
    from torch import Tensor

MOST = 1 << 17  # sums, which travel from each worker
FARTHEST = 16.0  # log-odds; beyond, probabilities differ from 0 and 1 by 1e-7


@dataclass(frozen=True, kw_only=True)
class RocAuc(Metric):
    """The area under the curve, in [0, 1]; of more than 2 classes the mean over each against the rest.

    Scores are counted in bins of equal width of log-odds, and two in one bin as alike, which counts half: a figure does
    not depend on how data is divided, and is exact as far as no bin has scores of both kinds.
    """

    bins: int = 512  # between log-odds of -16 and 16

    outputs: ClassVar[Literal["classes"]] = "classes"
    higher_is_better: ClassVar[bool] = True

    def __post_init__(self) -> None:
        at_least("bins", self.bins, 2)

    def rows(self, classes: int) -> int:
        rows = 2 * self.bins * self._curves(tallies.known(self.name, classes))
        if rows > MOST:
            raise SettingError(
                f"metric 'roc_auc' of {classes} classes and {self.bins} bins keeps {rows} sums; accepted: up to {MOST}"
            )
        return rows

    def sums(self, output: Tensor, target: Tensor, classes: int) -> Tensor:
        import torch

        counted = (target >= 0) & (target < classes)
        # in 64 bits: what is nearly 1 has nearly all its digits in how far it is from 1
        chances = output[counted].double().log_softmax(1)
        rest = (-chances.expm1()).clamp_min(1e-300).log()
        first = classes - self._curves(classes)  # of 2 classes the second one is looked at
        odds, mine = (chances - rest)[:, first:classes], target[counted].unsqueeze(1)
        places = ((odds + FARTHEST) * (self.bins / (2 * FARTHEST))).clamp(0, self.bins - 1).long()
        curves = torch.arange(odds.shape[1], device=odds.device)
        rows = ((mine == curves + first) + 2 * curves) * self.bins + places
        return torch.bincount(rows.flatten(), minlength=2 * self.bins * odds.shape[1])

    def figures(self, sums: Sequence[float], count: float) -> dict[str, float]:
        parts = [sums[start : start + self.bins] for start in range(0, len(sums), self.bins)]
        areas = [_area(*pair) for pair in zip(parts[::2], parts[1::2], strict=True) if all(map(any, pair))]
        return {self.name: sum(areas) / len(areas) if areas else nan}

    def _curves(self, classes: int) -> int:
        return 1 if classes == 2 else classes


def _area(others: Sequence[float], mine: Sequence[float]) -> float:
    below = area = 0.0
    for other, own in zip(others, mine, strict=True):
        area += own * (below + other / 2)
        below += other
    return area / (below * sum(mine))


METRIC = RocAuc
