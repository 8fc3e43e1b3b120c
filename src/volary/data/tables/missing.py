"""Missing values of a table: refuses them, skips their rows, or takes means. Imports NumPy when a table is read."""

from __future__ import annotations

from typing import TYPE_CHECKING

from volary.data.formats.missing_words import MISSING
from volary.errors import DataError

if TYPE_CHECKING:
    from volary.data.tables.table_rows import TableRows

SETTINGS = ("refuse", "skip", "mean")


def settled(table: TableRows, training: TableRows, setting: str) -> TableRows:
    """The table without missing values, by one of SETTINGS. training: the part whose means are taken.

    Raises DataError for those that are refused, and for a number that is infinite.
    """
    from volary.data.formats.numbers import refuse_not_finite

    if setting == "skip":
        table = _skipped(table)
    elif setting == "mean":
        table = _filled(table, training)
    refuse_not_finite(table.inputs, table.place_of)
    if table.numbers is not None:
        refuse_not_finite(table.numbers, table.target_place_of)
    return table


def _skipped(table: TableRows) -> TableRows:
    """Skip the rows that lack a value or their target."""
    import numpy as np

    if table.numbers is None:
        lacks = np.fromiter((text in MISSING for text in table.texts), dtype=bool, count=len(table.texts))
    else:
        lacks = np.isnan(table.numbers)
    lacks |= np.isnan(table.inputs).any(1)
    if not lacks.any():
        return table
    if lacks.all():
        raise DataError(f"{table.path}: each row lacks a value; accepted: a row without a missing value")
    first = table.name_of(int(np.argmax(lacks)))
    remark = f"{first}: is the first of the rows that lack a value and are skipped: {lacks.sum():,} of {len(lacks):,}"
    return table.with_rows(~lacks, remark)


def _filled(table: TableRows, training: TableRows) -> TableRows:
    """Fill each missing input with the mean of the training part's column."""
    import numpy as np

    lacks = np.isnan(table.inputs)
    if not lacks.any():
        return table
    present = np.isfinite(training.inputs)  # infinity is refused where it is
    if not present.any(0).all():
        empty = training.columns[int(np.argmin(present.any(0)))]
        raise DataError(f"{training.path}: column {empty!r} has no value; accepted: at least one")
    means = np.mean(training.inputs, axis=0, dtype=np.float64, where=present).astype(table.inputs.dtype)
    first = table.place_of(int(np.argmax(lacks)))
    remark = f"{first}: is the first of the missing values that become the column's mean: {lacks.sum():,}"
    return table.with_inputs(np.where(lacks, means, table.inputs), remark)
