"""The protocol of metrics: a sum over what counts, which is divided by how much that is, once, over all batches."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True, kw_only=True)
class Metric(ABC):
    """One figure of a model, as accuracy.

    outputs: what it is of: scores of classes; positions, scores of classes for each position of a sequence; or values,
    as of a regression. higher_is_better: whether the model with the greater figure is the better one.
    """

    outputs: ClassVar[Literal["classes", "positions", "values"]]
    higher_is_better: ClassVar[bool]

    @abstractmethod
    def total(self, output: Tensor, target: Tensor) -> Tensor:
        """The sum over a batch, a scalar.

        Classes and positions: float32 scores (n, classes) and targets (n,), of which each that is -100 adds nothing.
        Values: output and target (samples, ...), float32; the sum over the samples.
        """

    def figure(self, mean: float) -> float:
        """The figure that is shown, of the mean over all that counts."""
        return mean
