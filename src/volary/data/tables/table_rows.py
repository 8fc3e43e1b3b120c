"""Rows of named columns in memory."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, eq=False)
class TableRows:
    """Inputs (n, columns), NaN where a value is missing, and targets as texts, or else as numbers (n,).

    path: what to call it in a message. rows (n,): what each row is called by, and row_name calls it so.
    weights (n,): by which rows may be drawn, if the table says so.
    """

    path: str
    columns: tuple[str, ...]
    target: str
    inputs: NDArray[np.floating[Any]]
    texts: list[str]
    numbers: NDArray[np.float64] | None
    rows: NDArray[np.int64]
    row_name: Callable[[int], str]
    remarks: tuple[str, ...] = ()
    weights: NDArray[np.floating[Any]] | None = None

    def name_of(self, row: int) -> str:
        """The name of a row: its file and line."""
        return self.row_name(int(self.rows[row]))

    def place_of(self, at: int) -> str:
        """The name of the input at this place of the flattened inputs: its row and column."""
        row, column = divmod(at, len(self.columns))
        return f"{self.name_of(row)}: {self.columns[column]}"

    def target_place_of(self, row: int) -> str:
        """The name of a row's target."""
        return f"{self.name_of(row)}: {self.target}"

    def weighted(self) -> TableRows:
        """The same, with the last column of inputs as weights."""
        return replace(self, columns=self.columns[:-1], inputs=self.inputs[:, :-1], weights=self.inputs[:, -1])

    def with_inputs(self, inputs: NDArray[np.floating[Any]], remark: str) -> TableRows:
        """The same rows with other inputs."""
        return replace(self, inputs=inputs, remarks=(*self.remarks, remark))

    def only(self, numbers: NDArray[np.int64]) -> TableRows:
        """The rows with these `numbers` (m,)."""
        texts = [self.texts[number] for number in numbers.tolist()] if self.texts else []
        targets = None if self.numbers is None else self.numbers[numbers]
        weights = None if self.weights is None else self.weights[numbers]
        inputs, rows = self.inputs[numbers], self.rows[numbers]
        return replace(self, inputs=inputs, texts=texts, numbers=targets, rows=rows, weights=weights)

    def with_rows(self, kept: NDArray[np.bool_], remark: str) -> TableRows:
        """The rows that are `kept` (n,)."""
        return replace(self.only(np.flatnonzero(kept)), remarks=(*self.remarks, remark))


def standardised(inputs: NDArray[Any], training: NDArray[Any]) -> NDArray[Any]:
    """Each column (n, columns) with mean 0 and standard deviation 1 over the training part; a constant one is 0."""
    spread = training.std(0)
    found: NDArray[Any] = (inputs - training.mean(0)) / np.where(spread > 0, spread, 1.0)
    return found
