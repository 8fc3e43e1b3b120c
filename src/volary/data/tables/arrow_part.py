"""A part of a data set in Parquet or Arrow files, one after the other, whatever type each has for a column."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from volary.data.formats.extras import needed
from volary.data.remarks import listed, not_read
from volary.data.tables.arrow_columns import encoded, labels, numbers
from volary.data.tables.arrow_file import read_columns
from volary.data.tables.class_labels import class_labels
from volary.data.tables.table_rows import TableRows
from volary.errors import DataError

if TYPE_CHECKING:
    from volary.data.storage.place import Place


class ArrowPart:
    """The columns `inputs` and `target` of the files. target: empty for files without. where: what to call all.

    remarks: on what else is there.
    """

    def __init__(
        self, where: str, files: Sequence[Place], inputs: Sequence[str], target: str, remarks: tuple[str, ...] = ()
    ) -> None:
        """Read them. Raises DataError if one cannot be read or has no such columns, and for a part without a row."""
        self.where, self._inputs, self._target = where, tuple(inputs), target
        self._files: list[tuple[Place, Any]] = []
        left_out: dict[str, None] = {}
        for path in files:
            table, others = read_columns(path, list(dict.fromkeys([*inputs, *[target] * bool(target)])))
            self._files.append((path, table))
            left_out |= dict.fromkeys(others)
        self._starts = np.cumsum([0, *(len(table) for _, table in self._files)])
        if not len(self):
            raise DataError(f"{where}: empty: no row; accepted: at least one")
        self.remarks = (*remarks, *not_read(where, "column", list(left_out)))

    def __len__(self) -> int:
        return int(self._starts[-1])

    def name_of(self, row: int) -> str:
        """The name of a row in a message."""
        number = int(np.searchsorted(self._starts, row, side="right")) - 1
        return f"{self._files[number][0]}: row {row - self._starts[number]}"

    def labels(self) -> list[str]:
        """Each row's target as text; empty for null."""
        return [
            text
            for path, table in self._files
            for text in labels(table.column(self._target), f"{path}: {self._target}")
        ]

    def targets(self) -> NDArray[np.float32]:
        """Each row's target as a number (n,), NaN for null. Raises DataError for a column of something else."""
        accepted = "numbers, or kind: class"
        columns = [(str(path), table.column(self._target)) for path, table in self._files]
        return np.concatenate([numbers(column, path, self._target, accepted) for path, column in columns])

    def class_names(self) -> tuple[str, ...]:
        """The names of classes that are numbers, if the files have them. Raises DataError if they differ in that."""
        first = class_labels(self._files[0][1].schema.metadata, self._target)
        for path, table in self._files:
            if (names := class_labels(table.schema.metadata, self._target)) != first:
                called, wanted = listed(names) or "numbers", listed(first) or "numbers"
                raise DataError(f"{path}: has the classes {called}, {self._files[0][0]} {wanted}; accepted: the same")
        return first

    def images(self) -> Any | None:
        """The column of encoded images, without null; None if the inputs are no such column. Raises DataError."""
        name = self._inputs[0]
        found = [encoded(table.column(name)) for _, table in self._files]
        if all(column is None for column in found):
            return None
        if len(self._inputs) > 1:
            raise DataError(
                f"{self.where}: {name} has encoded images; accepted: inputs with this column alone, or columns of "
                "numbers"
            )
        arrow = needed("pyarrow", "parquet")
        for (path, table), column in zip(self._files, found, strict=True):
            if column is None:
                kind = table.column(name).type
                raise DataError(f"{path}: {name} is of the type {kind}; accepted: encoded images, as in other files")
            if column.null_count:
                row = column.is_null().to_pylist().index(True)
                raise DataError(f"{path}: row {row}: {name} is null; accepted: an encoded image in each row")
        kinds = {column.type for column in found}
        kind = kinds.pop() if len(kinds) == 1 else arrow.large_binary()
        return arrow.chunked_array([chunk for column in found for chunk in column.cast(kind).chunks], kind)

    def table(self, *, numeric: bool = False) -> TableRows:
        """The inputs as numbers, NaN for null, and the targets: labels, or numbers if they are numeric."""
        inputs = np.empty((len(self), len(self._inputs)), dtype=np.float32)
        for number, (path, table) in enumerate(self._files):
            block = inputs[self._starts[number] : self._starts[number + 1]]
            for place, name in enumerate(self._inputs):
                block[:, place] = numbers(table.column(name), str(path), name)
        return TableRows(
            path=self.where,
            columns=self._inputs,
            target=self._target,
            inputs=inputs,
            texts=self.labels() if self._target and not numeric else [],
            numbers=self.targets() if numeric else None,
            rows=np.arange(len(self)),
            row_name=self.name_of,
            remarks=self.remarks,
        )
