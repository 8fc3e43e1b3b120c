"""Rows of named columns in memory."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

Statistics = Sequence[tuple[float, float]]  # of each column: mean and standard deviation


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
    numbers: NDArray[np.floating[Any]] | None
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


def statistics_of(training: NDArray[Any]) -> tuple[tuple[float, float], ...]:
    """The mean and the standard deviation of each column (n, columns)."""
    return tuple(zip(training.mean(0).tolist(), training.std(0).tolist(), strict=True))


def standardised(inputs: NDArray[Any], statistics: Statistics) -> NDArray[Any]:
    """Each column (n, columns) with mean 0 and standard deviation 1 over what has these statistics; a constant one is
    0.
    """
    mean, spread = np.array(statistics).T
    found: NDArray[Any] = (inputs - mean) / np.where(spread > 0, spread, 1.0)
    return found


def filled(table: TableRows, statistics: Statistics) -> TableRows:
    """The table with the mean in place of each value that is missing."""
    lacks = np.isnan(table.inputs)
    if not lacks.any():
        return table
    inputs = np.where(lacks, np.array(statistics, dtype=table.inputs.dtype)[:, 0], table.inputs)
    first = table.place_of(int(np.argmax(lacks)))
    return table.with_inputs(
        inputs, f"{first}: is the first of the missing values that become the column's mean: {lacks.sum():,}"
    )
