"""Targets as a list's lines say them: a class, any of several labels, or numbers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from volary.data.formats.labels import Labels
from volary.errors import DataError


class PartLabels(NamedTuple):
    """The targets in the lines of a part. where: what to call the part in a message; place_of: what to call a line."""

    texts: Sequence[str]
    where: str
    place_of: Callable[[int], str]


class LineTargets(NamedTuple):
    """Targets (n, ...). classes: how many, None for numbers. names: of the classes; none: they are numbers."""

    targets: NDArray[Any]
    classes: int | None
    names: tuple[str, ...]


def targets_of(kind: str, training: PartLabels, part: PartLabels) -> LineTargets:
    """Targets of a part: classes (n,), labels (n, labels) that are 1 or 0 in float32, or numbers (n, numbers) in it.

    kind: class, labels or numbers. Raises DataError with the line of what is none, or not what the training part has.
    """
    if kind == "numbers":
        return LineTargets(_numbers(training, part), None, ())
    if kind == "labels":
        return _labels(training, part)
    labels = Labels(training.texts, training.where, training.place_of)
    return LineTargets(labels.numbered(part.texts, part.place_of), labels.count, labels.names)


def _labels(training: PartLabels, part: PartLabels) -> LineTargets:
    """A line may have none of them."""
    known, lines = _words(training)
    if not known:
        raise DataError(f"{training.where}: no line has a label; accepted: a path and labels on each line")
    labels = Labels(known, training.where, lambda at: training.place_of(lines[at]))
    words, rows = _words(part)
    found = labels.numbered(words, lambda at: part.place_of(rows[at])) if words else np.empty(0, dtype=np.int64)
    targets = np.zeros((len(part.texts), labels.count), dtype=np.float32)
    targets[rows, found] = 1
    return LineTargets(targets, labels.count, labels.names)


def _words(part: PartLabels) -> tuple[list[str], list[int]]:
    """All words of all lines, and the line of each."""
    split = [text.replace(",", " ").split() for text in part.texts]
    words = [word for line in split for word in line]
    return words, [row for row, line in enumerate(split) for _ in line]


def _numbers(training: PartLabels, part: PartLabels) -> NDArray[np.float32]:
    """As many on each line as on the first one of the training part."""
    from volary.data.formats.numbers import as_float32, refuse_not_finite

    count = len(training.texts[0].replace(",", " ").split())
    accepted = f"{count or 'one or more'} numbers" + f", as on the first line of {training.where}" * bool(count)
    values = np.empty((len(part.texts), count), dtype=np.float64)
    for row, text in enumerate(part.texts):
        words = text.replace(",", " ").split()
        try:
            if not count or len(words) != count or "_" in text:  # Python's float takes 1_0 for 10
                raise ValueError
            values[row] = list(map(float, words))
        except ValueError:
            says = f"has {text.strip()!r}" if words else "has no number"
            raise DataError(f"{part.place_of(row)}: {says}; accepted: {accepted}") from None

    def place_of(at: int) -> str:
        return f"{part.place_of(at // count)}: number {at % count + 1}"

    refuse_not_finite(values, place_of)
    return as_float32(values, place_of)
