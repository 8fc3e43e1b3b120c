"""Parquet: columns that pandas, Polars, DuckDB and Spark read. Needs pyarrow."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, ClassVar

from volary.loggers._base import About
from volary.run.database.journal import STEP_FIELDS, StepRow
from volary.run.disk import refuse_unwritable

_GROUP_ROWS = 100_000


@dataclass(frozen=True, kw_only=True)
class ParquetLogger:
    """`steps.parquet`, a row for each step and worker, and `metrics.parquet`; to be read once the copy is done."""

    package: ClassVar[str | None] = "pyarrow"
    folder: Path | None = None  # where to (default: `parquet` in the run)

    def check(self) -> None:
        if self.folder is not None:
            refuse_unwritable("parquet: folder", self.folder, make=True)

    def open(self, about: About) -> ParquetWriter:
        """New files, in place of older ones once they are whole."""
        return ParquetWriter(self._folder(about), import_module("pyarrow"), import_module("pyarrow.parquet"))

    def where(self, about: About) -> str:
        return str(self._folder(about))

    def _folder(self, about: About) -> Path:
        return self.folder or about.path / "parquet"


class ParquetWriter:
    """See `volary.loggers._base.Writer`. pa, pq: the packages pyarrow and pyarrow.parquet."""

    def __init__(self, folder: Path, pa: Any, pq: Any) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._pa, self._folder = pa, folder
        kinds = {name: pa.int64() if of is int else pa.float64() for name, of in STEP_FIELDS.items()}
        metrics = {"step": pa.int64(), "name": pa.string(), "value": pa.float64(), "at": pa.float64()}
        self._schemas = {"steps": pa.schema(kinds.items()), "metrics": pa.schema(metrics.items())}
        self._writers = {name: pq.ParquetWriter(self._draft(name), schema) for name, schema in self._schemas.items()}
        self._waiting: list[StepRow] = []

    def steps(self, rows: Sequence[StepRow]) -> None:
        """Gathered to groups of rows, which are read as one."""
        self._waiting += rows
        if len(self._waiting) >= _GROUP_ROWS:
            self._write_steps()

    def measured(self, step: int, values: Mapping[str, float], at: float) -> None:
        columns: dict[str, list[Any]] = {
            "step": [step] * len(values),
            "name": list(values),
            "value": list(values.values()),
            "at": [at] * len(values),
        }
        self._write("metrics", columns)

    def flush(self) -> None:
        """Do nothing: nothing can be read before the end."""

    def close(self, state: str) -> None:
        """Make the files whole, and give them their names."""
        self._write_steps()
        for name, writer in self._writers.items():
            writer.close()
            self._draft(name).replace(self._folder / f"{name}.parquet")

    def _write_steps(self) -> None:
        columns = {name: [getattr(row, name) for row in self._waiting] for name in STEP_FIELDS}
        self._write("steps", columns)
        self._waiting.clear()

    def _write(self, name: str, columns: dict[str, list[Any]]) -> None:
        self._writers[name].write_table(self._pa.table(columns, schema=self._schemas[name]))

    def _draft(self, name: str) -> Path:
        return self._folder / f".{name}.parquet.new"


LOGGER = ParquetLogger
