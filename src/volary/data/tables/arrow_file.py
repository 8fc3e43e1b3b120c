"""Columns of a Parquet or Arrow file, within the limits for what comes out of it. Needs the extra `parquet`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from volary.data.formats.extras import needed
from volary.data.formats.unpacking import RATIO_LIMIT, SMALL_BYTES, beyond
from volary.data.remarks import listed
from volary.data.tables.arrow_size import unpacked_bytes
from volary.errors import DataError

if TYPE_CHECKING:
    from volary.data.storage.place import Place

SUFFIXES = (".parquet", ".arrow", ".feather")
ACCEPTED = "a file or a folder of files (" + ", ".join(SUFFIXES) + ")"
_PARQUET = b"PAR1"  # at its start and at its end
_ARROW = (b"ARRO", b"\xff\xff\xff\xff")  # a file, and a stream


def check_start(path: Place) -> None:
    """Raise DataError if the file is not what it should be, by how it starts, or if a Parquet file has lost its end."""
    with path.open("rb") as file:
        start = file.read(4)
        if start == _PARQUET:
            file.seek(-4, 2)
            if file.read(4) != _PARQUET:
                raise DataError(f"{path}: truncated: it does not end as Parquet does; accepted: {ACCEPTED}")
        elif start not in _ARROW:
            raise DataError(f"{path}: is neither Parquet nor Arrow; accepted: {ACCEPTED}")


def read_columns(path: Place, columns: Sequence[str]) -> tuple[Any, list[str]]:
    """A pyarrow.Table with these columns, and the names of those that are not among them.

    Raises DataError for a file that cannot be read, and for a column that is missing or not alone with its name.
    """
    arrow = needed("pyarrow", "parquet")
    try:
        table, names = _read(path, columns)
    except (arrow.ArrowException, OSError) as problem:
        raise DataError(f"{path}: cannot be read ({problem}); accepted: {ACCEPTED}") from problem
    for name in columns:
        if not (count := names.count(name)):
            raise DataError(f"{path}: has no column {name!r}; it has {listed(names) or 'none'}")
        if count > 1:
            raise DataError(f"{path}: has {count} columns {name!r}; accepted: names that differ")
    return table.select(list(columns)), [name for name in names if name not in columns]


def _read(path: Place, columns: Sequence[str]) -> tuple[Any, list[str]]:
    """A table with these columns, or with more, and the names of all that the file has."""
    arrow = needed("pyarrow", "parquet")
    with path.open("rb") as opened:
        start = opened.read(4)
    if start == _PARQUET:
        parquet = needed("pyarrow.parquet", "parquet")
        with parquet.ParquetFile(path if isinstance(path, Path) else arrow.BufferReader(path.read_bytes())) as file:
            _refuse_large(file.metadata, path, columns)
            names = file.schema_arrow.names
            return file.read([name for name in columns if name in names]), names
    whole = arrow.memory_map(str(path)).read_buffer() if isinstance(path, Path) else arrow.py_buffer(path.read_bytes())
    if unpacked_bytes(arrow, whole) > (most := _most(path)):
        raise beyond(path, most, "one whose buffers are not compressed")
    try:
        table = arrow.ipc.open_file(whole).read_all()
    except arrow.ArrowInvalid:  # a stream, as Hugging Face's data sets write them
        table = arrow.ipc.open_stream(whole).read_all()
    return table, table.column_names


def _refuse_large(metadata: Any, path: Place, columns: Sequence[str]) -> None:
    """Raise DataError if the columns would be many times as large in memory as the file: numbers that are all equal
    take next to nothing in it. A text that occurs often counts once.
    """
    groups = [metadata.row_group(number) for number in range(metadata.num_row_groups)]
    parts = [group.column(number) for group in groups for number in range(group.num_columns)]
    inside = tuple(f"{name}." for name in columns)  # of a column of structures
    wanted = [one for one in parts if one.path_in_schema in columns or one.path_in_schema.startswith(inside)]
    content = sum(one.total_uncompressed_size for one in wanted)
    if max(content, 8 * metadata.num_rows * len(columns)) > (most := _most(path)):
        raise beyond(path, most, "an .arrow file")


def _most(path: Place) -> int:
    """Bytes that may come out of a file; it may be large, as its columns are what is trained on."""
    return max(SMALL_BYTES, RATIO_LIMIT * path.stat().st_size)
