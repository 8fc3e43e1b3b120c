"""Parquet and Arrow files: a column of encoded images, or columns of numbers. Needs the extra `parquet`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from volary.data.formats.arrow_size import unpacked_bytes
from volary.data.formats.extras import needed
from volary.data.formats.files import existing_file, matching
from volary.data.formats.unpacking import RATIO_LIMIT, SMALL_BYTES, beyond
from volary.data.loading.image_settings import ImageSettings
from volary.data.storage.place import located
from volary.errors import DataError, SettingError
from volary.session.values.url import Location

if TYPE_CHECKING:
    from volary.data.samples import Samples, Split
    from volary.data.storage.place import Place

_SUFFIXES = (".parquet", ".arrow", ".feather")
_ACCEPTED = "a file or a folder of files (" + ", ".join(_SUFFIXES) + ")"


@dataclass(frozen=True, kw_only=True)
class ParquetTable(ImageSettings):
    """Images as `images` gives them, or numbers (columns,) in float32. What is encoded stays so in memory."""

    train: Location  # the training part: a file, or a folder of files in the order of their names
    test: Location  # the validation data, likewise
    inputs: tuple[str, ...] = ("image",)  # one column of encoded images (or of {bytes, path}), or columns of numbers
    target: str = "label"  # the column to predict: classes as numbers or names

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.inputs or not self.target:
            raise SettingError(f"inputs is {self.inputs} and target {self.target!r}; accepted: names of columns")

    def check(self) -> None:
        """Look whether the files exist and start as they should. Raises DataError if they do not."""
        for split in ("train", "test"):
            for path in self._files(split):
                with path.open("rb") as file:
                    if file.read(4) not in (b"PAR1", b"ARRO", b"\xff\xff\xff\xff"):
                        raise DataError(f"{path}: is neither Parquet nor Arrow; accepted: {_ACCEPTED}")

    def count(self, split: Split) -> None:
        """Unknown before the files are opened."""

    def open(self, split: Split) -> Samples:
        """Read the columns. Raises DataError if one is missing or of a type that cannot be used."""
        import numpy as np
        import torch

        from volary.data.formats.labels import Labels
        from volary.data.memory import InMemory
        from volary.data.records.in_memory import InHand

        table = self._table(split)
        said = [str(label) for label in self._table("train", (self.target,)).column(self.target).to_pylist()]
        texts = [str(label) for label in table.column(self.target).to_pylist()]
        labels, where = Labels(said, str(self.train)), str(getattr(self, split))
        targets = torch.from_numpy(labels.numbered(texts, where))
        first = table.column(self.inputs[0])
        if (encoded := _encoded(first)) is not None:
            records = InHand(lambda index: memoryview(encoded[index].as_buffer()), len(table), where)
            return self.decoded(records, targets, labels.count, split)
        try:
            columns = [np.asarray(table.column(name).to_numpy(), dtype=np.float32) for name in self.inputs]
        except (TypeError, ValueError) as problem:
            raise DataError(f"{where}: {problem}; accepted: columns of numbers, or one of encoded images") from problem
        return InMemory(torch.from_numpy(np.stack(columns, axis=1)), targets, labels.count)

    def _table(self, split: Split, columns: tuple[str, ...] = ()) -> Any:
        arrow = needed("pyarrow", "parquet")
        wanted = list(dict.fromkeys(columns or (*self.inputs, self.target)))
        tables = []
        for path in self._files(split):
            try:
                tables.append(_read(path, wanted))
            except (arrow.ArrowException, OSError) as problem:
                raise DataError(f"{path}: cannot be read ({problem}); accepted: {_ACCEPTED}") from problem
            if missing := [name for name in wanted if name not in tables[-1].column_names]:
                raise DataError(f"{path}: has no column {missing[0]!r}")
        table = arrow.concat_tables(tables).select(wanted)
        if not len(table):
            raise DataError(f"{getattr(self, split)}: empty: no row; accepted: at least one")
        return table

    def _files(self, split: Split) -> list[Place]:
        path = located(getattr(self, split))
        if not path.is_dir():
            return [existing_file(path, _ACCEPTED)]
        if found := [file for file in matching(path, "*") if file.suffix in _SUFFIXES]:
            return found
        raise DataError(f"{path}: has no {', '.join(_SUFFIXES)}; accepted: {_ACCEPTED}")


def _read(path: Place, columns: list[str]) -> Any:
    arrow = needed("pyarrow", "parquet")
    if path.suffix == ".parquet":
        parquet = needed("pyarrow.parquet", "parquet")
        with parquet.ParquetFile(path if isinstance(path, Path) else arrow.BufferReader(path.read_bytes())) as file:
            _check(file.metadata, path, columns)
            return file.read([name for name in columns if name in file.schema_arrow.names])
    whole = arrow.memory_map(str(path)).read_buffer() if isinstance(path, Path) else arrow.py_buffer(path.read_bytes())
    if unpacked_bytes(arrow, whole) > (most := _most(path)):
        raise beyond(path, most, "one whose buffers are not compressed")
    try:
        return arrow.ipc.open_file(whole).read_all()
    except arrow.ArrowInvalid:  # a stream, as Hugging Face's data sets write them
        return arrow.ipc.open_stream(whole).read_all()


def _check(metadata: Any, path: Place, columns: list[str]) -> None:
    """Raise DataError if the columns would be many times as large in memory as the file: numbers that are all equal
    take next to nothing in it. A text that occurs often counts once.
    """
    groups = [metadata.row_group(number) for number in range(metadata.num_row_groups)]
    parts = [group.column(number) for group in groups for number in range(group.num_columns)]
    content = sum(one.total_uncompressed_size for one in parts if one.path_in_schema.partition(".")[0] in columns)
    if max(content, 8 * metadata.num_rows * len(columns)) > (most := _most(path)):
        raise beyond(path, most, "an .arrow file")


def _most(path: Place) -> int:
    """Bytes that may come out of a file; it may be large, as its columns are what is trained on."""
    return max(SMALL_BYTES, RATIO_LIMIT * path.stat().st_size)


def _encoded(column: Any) -> Any:
    """The column of bytes, which may be in a column of {bytes, path}; None if it is of something else."""
    arrow = needed("pyarrow", "parquet")
    if arrow.types.is_struct(column.type) and column.type.get_field_index("bytes") >= 0:
        column = needed("pyarrow.compute", "parquet").struct_field(column, "bytes")
    binary = arrow.types.is_binary(column.type) or arrow.types.is_large_binary(column.type)
    return column if binary else None


SOURCE = ParquetTable
