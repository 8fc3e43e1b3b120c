"""Targets as they are written in files: numbers, or names that are numbered."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from volary.data.formats.missing_words import MISSING
from volary.errors import DataError

MOST_CLASSES = 10**7
_MOST_DIGITS = len(str(MOST_CLASSES))
_WHOLE = re.compile(r"0*(\d+)(?:\.0*)?", re.ASCII)  # also 3.0, as tables have it whose column had a missing value once
_NUMBER = re.compile(r"[+-]?(?:\d*\.\d+|\d+\.?)(?:[eE][+-]?\d+)?", re.ASCII)

PlaceOf = Callable[[int], str]  # what to call a sample in a message: its file and row


class Labels:
    """Classes by what the training part says: whole numbers are the classes themselves, names are numbered in order."""

    def __init__(self, training: Sequence[str], where: str, place_of: PlaceOf) -> None:
        """where: what to call the training part in a message. Raises DataError for a label that is none."""
        self._where = where
        self._names: dict[str, int] | None = None
        self.names: tuple[str, ...] = ()  # of the classes, in their order; none: they are numbers
        kinds = set(training)
        if missing := kinds & MISSING:
            raise _refused(training, missing, place_of, "a number or a name for each sample")
        numbers = _numbers(kinds)
        if len(numbers) < len(kinds):
            if all(map(_NUMBER.fullmatch, kinds)):
                raise _refused(training, kinds.difference(numbers), place_of, "names, or whole numbers from 0 on")
            self.names = tuple(sorted(kinds))
            self._names = {name: number for number, name in enumerate(self.names)}
            self.count = len(self.names)
            return
        if large := {text for text, number in numbers.items() if number >= MOST_CLASSES}:
            raise _refused(training, large, place_of, f"the number of a class, 0 to {MOST_CLASSES - 1:,}")
        self.count = 1 + max(numbers.values())

    def numbered(self, texts: Sequence[str], place_of: PlaceOf) -> NDArray[np.int64]:
        """The class of each. Raises DataError for one that the training part has not."""
        kinds = set(texts)
        if self._names is None:
            known = {text: number for text, number in _numbers(kinds).items() if number < self.count}
            accepted = f"0 to {self.count - 1}, as in {self._where}"
        else:
            known, accepted = self._names, f"one that {self._where} has"
        if unknown := kinds.difference(known):
            raise _refused(texts, unknown, place_of, accepted)
        return np.fromiter(map(known.__getitem__, texts), dtype=np.int64, count=len(texts))


def _numbers(texts: Iterable[str]) -> dict[str, int]:
    """The values of texts that are whole numbers from 0 on; endless ones get one that is too large."""
    found = {text: match[1] for text in texts if (match := _WHOLE.fullmatch(text))}
    return {text: int(digits[: _MOST_DIGITS + 1]) for text, digits in found.items()}


def _refused(texts: Sequence[str], wrong: set[str], place_of: PlaceOf, accepted: str) -> DataError:
    row = next(row for row, text in enumerate(texts) if text in wrong)
    text = texts[row] if len(texts[row]) <= 60 else f"{texts[row][:57]}..."
    return DataError(f"{place_of(row)}: {f'has the label {text!r}' if text else 'has no label'}; accepted: {accepted}")
