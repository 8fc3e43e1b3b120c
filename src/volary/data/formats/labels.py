"""Targets as they are written in files: numbers, or names that are numbered."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from volary.errors import DataError


class Labels:
    """Classes by what the training part says: whole numbers are the classes themselves, names are numbered in order."""

    def __init__(self, training: Sequence[str], where: str) -> None:
        """where: what to call the training part in a message."""
        self._where = where
        self._numbers: dict[str, int] | None = None
        if all(text.isdecimal() for text in training):
            self.count = 1 + max(map(int, training))
        else:
            self._numbers = {name: number for number, name in enumerate(sorted(set(training)))}
            self.count = len(self._numbers)

    def numbered(self, texts: Sequence[str], where: str) -> NDArray[np.int64]:
        """The class of each. Raises DataError for one that the training part has not."""
        for place, text in enumerate(texts):
            known = text.isdecimal() if self._numbers is None else text in self._numbers
            if not known or (self._numbers is None and int(text) >= self.count):
                raise DataError(f"{where}: sample {place} has the label {text!r}, which {self._where} has not")
        if self._numbers is None:
            return np.array(texts, dtype=np.int64)
        return np.array([self._numbers[text] for text in texts], dtype=np.int64)
