"""Comma-separated values with a header (RFC 4180); an input that could not be read has empty cells."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from volary.train.predicting.formats.table.columns import Cell, cells, header

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from volary.train.predicting.formats._base import AnswerForm

_DIGITS = 9  # of float32, which are enough to have the same number again


class CsvPredictions:
    """A line for each input."""

    def __init__(self, path: Path, form: AnswerForm) -> None:
        columns = header(form)
        self._form, self._file = form, path.open("w", newline="", encoding="utf-8")
        self._rows = csv.writer(self._file, lineterminator="\n")
        self._rows.writerow(columns)

    def write(self, names: Sequence[str], values: NDArray[Any]) -> None:
        for row in cells(self._form, names, values):
            self._rows.writerow(map(_text, row))

    def close(self) -> None:
        self._file.close()


def _text(cell: Cell) -> str:
    return "" if cell is None else cell if isinstance(cell, str) else f"{cell:.{_DIGITS}g}"


WRITER = CsvPredictions
