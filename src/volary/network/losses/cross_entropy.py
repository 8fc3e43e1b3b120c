"""Cross-entropy for classification and language models; label smoothing as in Szegedy et al. 2016, arXiv:1512.00567."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, Literal

from volary.errors import SettingError
from volary.network.checks import metrics, share
from volary.network.criterion import Criterion
from volary.network.losses._base import Loss
from volary.session.reading.choice import Choice
from volary.session.values.per_class import PerClass, numbers_of


@dataclass(frozen=True, kw_only=True)
class CrossEntropy(Loss):
    """Cross-entropy of the classes' scores; measures accuracy and, for sequences, perplexity per position."""

    label_smoothing: float = 0.0  # share of the target's weight that is spread over all classes, in [0, 1)
    auxiliary_weight: float = 0.3  # weight of the auxiliary heads' losses, for networks that have such heads
    class_weights: PerClass | Literal["balanced"] = ()  # how much targets of a class count: in order, or by name
    ignore_index: int = -100  # a target that counts for nothing, beside -100, which never does
    metric: str = "accuracy"  # what decides which checkpoint is the best: loss, or a metric of classes
    metrics: tuple[Annotated[Any, Choice("volary.network.metrics")], ...] = ()  # others to measure, as [f1, confusion]

    def __post_init__(self) -> None:
        share("label_smoothing", self.label_smoothing)
        metrics(self.metric, self.metrics, ("classes", "positions"))
        given = self.class_weights
        each = () if isinstance(given, str) else numbers_of(given)
        if any(one < 0 for one in each) or (isinstance(given, tuple) and each and not any(each)):
            raise SettingError(f"class_weights is {given}; accepted: a number from 0 for each class, and one above 0")
        if self.auxiliary_weight < 0:
            raise SettingError(f"auxiliary_weight is {self.auxiliary_weight}; accepted: from 0")

    def build(self) -> Criterion:
        """The criterion; see `volary.network.criteria.classification` for the shapes it takes."""
        from volary.network.criteria.classification import BESIDE, Classification
        from volary.network.criteria.measures import Measures

        measures = Measures(self.metric, self.metrics, BESIDE)
        return Classification(
            measures, self.label_smoothing, self.auxiliary_weight, self.ignore_index, self.class_weights
        )


LOSS = CrossEntropy
