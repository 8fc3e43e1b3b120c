"""The protocol of metrics: sums over what counts, which batches and workers add up, and the figures that they make."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True, kw_only=True)
class Metric(ABC):
    """A figure that is measured of a model, as F1. Its fields are its settings.

    outputs: what it is of: scores of classes; positions, scores of classes for each position of a sequence; or values,
    as of a regression. higher_is_better: whether the model with the greater figure is the better one; None for what
    gives several figures, as a confusion matrix, and cannot say which model is better.
    """

    outputs: ClassVar[Literal["classes", "positions", "values"]]
    higher_is_better: ClassVar[bool | None]

    @property
    def name(self) -> str:
        """The name of its figure: its file's, unless a setting belongs to it."""
        return type(self).__module__.rpartition(".")[2]

    @abstractmethod
    def rows(self, classes: int) -> int:
        """How many sums it keeps. classes: of the data, 0: not known. Raises SettingError if that does not do."""

    @abstractmethod
    def sums(self, output: Tensor, target: Tensor, classes: int) -> Tensor:
        """The sums over a batch, (rows(classes),).

        Classes and positions: float32 scores (n, at least classes) and targets (n,), of which each that is -100 adds
        nothing. Values: output and target (samples, ...), float32; sums over the samples.
        """

    @abstractmethod
    def figures(self, sums: Sequence[float], count: float) -> dict[str, float]:
        """The figures by name, of the sums over all `count` targets or samples, which is above 0.

        One called `name`; of several, each has its place in brackets, as `recall[3]`.
        """


@dataclass(frozen=True, kw_only=True)
class MeanMetric(Metric):
    """A metric that is a mean over all that counts, as accuracy."""

    def rows(self, classes: int) -> int:
        return 1

    def sums(self, output: Tensor, target: Tensor, classes: int) -> Tensor:
        return self.total(output, target).reshape(1)

    def figures(self, sums: Sequence[float], count: float) -> dict[str, float]:
        return {self.name: self.figure(sums[0] / count)}

    @abstractmethod
    def total(self, output: Tensor, target: Tensor) -> Tensor:
        """The sum over a batch, a scalar; output and target are as `Metric.sums` takes them."""

    def figure(self, mean: float) -> float:
        """The figure that is shown, of the mean over all that counts."""
        return mean


def mean_of_sample(values: Tensor) -> Tensor:
    """The mean of each sample's values (samples, ...), (samples,); of no samples, too."""
    return values.mean(tuple(range(1, values.ndim))) if values.ndim > 1 else values
