"""Tallies of classes: hits, predictions and targets of each, their matrix, and the ratios made of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import nan
from typing import TYPE_CHECKING, NamedTuple

from volary.errors import SettingError
from volary.network.checks import NO_CLASSES

if TYPE_CHECKING:
    from torch import Tensor

FEW = 100  # classes of which each has figures of its own


class Tally(NamedTuple):
    """How often a class is predicted and right, predicted, and the target."""

    hits: float
    predicted: float
    targets: float


def known(metric: str, classes: int) -> int:
    """`classes`, for a metric that has to know them. Raises SettingError if they are 0: not known."""
    if not classes:
        raise SettingError(f"metric {metric!r}: {NO_CLASSES}")
    return classes


def few(metric: str, classes: int) -> int:
    """`classes`, for a metric with figures for each. Raises SettingError for more than can be looked at."""
    if known(metric, classes) > FEW:
        raise SettingError(f"metric {metric!r} of {classes} classes; accepted: up to {FEW} classes")
    return classes


def matrix(output: Tensor, target: Tensor, classes: int) -> Tensor:
    """Counts (classes, classes), a row for each target, of scores (n, at least classes) and targets (n,).

    Of targets of -100, and of predictions that are none of the classes, nothing is counted.
    """
    predicted = output.argmax(1)
    counted = (target >= 0) & (target < classes) & (predicted < classes)
    places = target[counted] * classes + predicted[counted]
    return places.bincount(minlength=classes**2).reshape(classes, classes)


def of_classes(output: Tensor, target: Tensor, classes: int) -> Tensor:
    """Tallies (classes, 3) of scores (n, at least classes) and targets (n,), of which those of -100 add nothing."""
    import torch

    predicted, counted = output.argmax(1), (target >= 0) & (target < classes)
    hits, found = target[counted & (predicted == target)], predicted[counted & (predicted < classes)]
    return torch.stack([one.bincount(minlength=classes) for one in (hits, found, target[counted])], 1)


def read(sums: Sequence[float]) -> list[Tally]:
    """The tallies of all classes, of what `of_classes` gave, added up and flattened."""
    return [Tally(*sums[start : start + 3]) for start in range(0, len(sums), 3)]


def there(tally: Tally) -> bool:
    """Whether the class is a target or a prediction at all."""
    return tally.predicted + tally.targets > 0


def precision(tally: Tally) -> float:
    """The share of predictions that are right; 0 without one."""
    return tally.hits / tally.predicted if tally.predicted else 0.0


def recall(tally: Tally) -> float:
    """The share of targets that are found; 0 without one."""
    return tally.hits / tally.targets if tally.targets else 0.0


def f1(tally: Tally) -> float:
    """The harmonic mean of precision and recall; 0 without a hit."""
    return 2 * tally.hits / (tally.predicted + tally.targets) if there(tally) else 0.0


def averaged(tallies: Sequence[Tally], ratio: Callable[[Tally], float], average: str) -> float:
    """`ratio`, a mean over the classes that are there (macro), or of the sum of tallies (micro); NaN of none."""
    found = [one for one in tallies if there(one)]
    if not found:
        return nan
    if average == "micro":
        return ratio(Tally(*map(sum, zip(*found, strict=True))))
    return sum(map(ratio, found)) / len(found)
