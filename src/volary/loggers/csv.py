"""Comma-separated values: a file of steps, and one of what evaluations measured."""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from volary.loggers._base import About
from volary.run.database.journal import STEP_FIELDS, StepRow
from volary.run.disk import refuse_unwritable


@dataclass(frozen=True, kw_only=True)
class Csv:
    """`steps.csv`, a row for each step and worker, and `metrics.csv`, a row for each value."""

    package: ClassVar[str | None] = None
    folder: Path | None = None  # where to (default: `csv` in the run)

    def check(self) -> None:
        if self.folder is not None:
            refuse_unwritable("csv: folder", self.folder, make=True)

    def open(self, about: About) -> CsvWriter:
        return CsvWriter(self._folder(about))

    def where(self, about: About) -> str:
        return str(self._folder(about))

    def _folder(self, about: About) -> Path:
        return self.folder or about.path / "csv"


class CsvWriter:
    """Writes a run's rows to CSV files, one for each table."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._files = [(folder / name).open("w", newline="", encoding="utf-8") for name in ("steps.csv", "metrics.csv")]
        self._steps, self._metrics = map(csv.writer, self._files)
        self._steps.writerow(STEP_FIELDS)
        self._metrics.writerow(("step", "name", "value", "at"))

    def steps(self, rows: Sequence[StepRow]) -> None:
        self._steps.writerows(rows)

    def measured(self, step: int, values: Mapping[str, float], at: float) -> None:
        self._metrics.writerows((step, name, value, at) for name, value in values.items())

    def flush(self) -> None:
        for file in self._files:
            file.flush()

    def close(self, state: str) -> None:
        with ExitStack() as all_files:  # also if one cannot be written any more
            for file in self._files:
                all_files.callback(file.close)


LOGGER = Csv
