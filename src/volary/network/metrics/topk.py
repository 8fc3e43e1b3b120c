"""Top-k accuracy: how many of the targets are among the k classes with the highest scores."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal

from volary.network.checks import at_least
from volary.network.metrics._base import MeanMetric

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True, kw_only=True)
class TopKAccuracy(MeanMetric):
    """The share of targets, in [0, 1], whose class is among the best k."""

    k: int = 5  # classes with the highest scores, of which one has to be the target's

    outputs: ClassVar[Literal["classes"]] = "classes"
    higher_is_better: ClassVar[bool] = True

    def __post_init__(self) -> None:
        at_least("k", self.k, 1)

    @property
    def name(self) -> str:
        return f"top{self.k}"

    def total(self, output: Tensor, target: Tensor) -> Tensor:
        best = output.topk(min(self.k, output.shape[1])).indices
        return (best == target.unsqueeze(1)).sum()


METRIC = TopKAccuracy
