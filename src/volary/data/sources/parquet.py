"""Parquet and Arrow files: a column of encoded images, or columns of numbers. Needs the extra `parquet`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from volary.data.samples import BOTH
from volary.data.storage.place import located
from volary.data.tables.arrow_file import check_start
from volary.data.tables.arrow_settings import ArrowFiles, ArrowSettings
from volary.session.values.url import Location

if TYPE_CHECKING:
    from volary.data.samples import Split


@dataclass(frozen=True, kw_only=True)
class ParquetTable(ArrowSettings):
    """Images as `images` gives them, or numbers (columns,) in float32. What is encoded stays so in memory."""

    train: Location  # the training part: a file, or a folder of files in the order of their names
    test: Location | None = None  # the validation data, likewise

    def check(self, parts: Sequence[Split] = BOTH) -> None:
        """Look whether the files exist and start as they should. Raises DataError if they do not."""
        for split in parts:
            for path in self.files_of(split).paths:
                check_start(path)

    def count(self, split: Split) -> None:
        """Unknown before the files are opened."""

    def files_of(self, split: Split) -> ArrowFiles:
        return ArrowFiles.at(located(getattr(self, split)))


SOURCE = ParquetTable
