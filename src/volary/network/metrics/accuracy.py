"""Accuracy: how many of the targets have the highest score."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal

from volary.network.metrics._base import MeanMetric

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True, kw_only=True)
class Accuracy(MeanMetric):
    """The share of targets, in [0, 1], whose class has the highest score."""

    outputs: ClassVar[Literal["classes"]] = "classes"
    higher_is_better: ClassVar[bool] = True

    def total(self, output: Tensor, target: Tensor) -> Tensor:
        return (output.argmax(1) == target).sum()


METRIC = Accuracy
