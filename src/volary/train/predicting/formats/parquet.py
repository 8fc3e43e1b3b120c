"""Parquet: the columns of the .csv; numbers that are several a row are one column of lists. Needs pyarrow."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any

from volary.data.formats.extras import needed
from volary.train.predicting.formats.table.columns import cells, header

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from volary.train.predicting.formats._base import AnswerForm

_GROUP_ROWS = 10_000


class ParquetPredictions:
    """A row for each input, written in groups; null where one could not be read."""

    def __init__(self, path: Path, form: AnswerForm) -> None:
        self._arrow = needed("pyarrow", "parquet")
        self._form, self._lists = form, not form.classes and prod(form.shape) > 1
        columns = [*header(form)[:1], form.name] if self._lists else header(form)
        kinds = [self._kind(name) for name in columns]
        self._schema = self._arrow.schema(list(zip(columns, kinds, strict=True)))
        self._file = needed("pyarrow.parquet", "parquet").ParquetWriter(path, self._schema)
        self._rows: list[list[Any]] = []

    def write(self, names: Sequence[str], values: NDArray[Any]) -> None:
        for row in cells(self._form, names, values):
            self._rows.append([row[0], None if row[1] is None else row[1:]] if self._lists else row)
            if len(self._rows) == _GROUP_ROWS:
                self._flush()

    def close(self) -> None:
        self._flush()
        self._file.close()

    def _flush(self) -> None:
        if self._rows:
            columns = map(list, zip(*self._rows, strict=True))
            arrays = [self._arrow.array(column, kind) for column, kind in zip(columns, self._schema.types, strict=True)]
            self._file.write_table(self._arrow.Table.from_arrays(arrays, schema=self._schema))
            self._rows = []

    def _kind(self, column: str) -> Any:
        if column == "input" or column == "class" or (self._form.top and column.startswith("class_")):
            return self._arrow.string()
        return self._arrow.list_(self._arrow.float32()) if self._lists else self._arrow.float32()


WRITER = ParquetPredictions
