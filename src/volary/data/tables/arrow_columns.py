"""Columns of Arrow as numbers, labels and encoded images, in whichever type a file has them."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from volary.data.formats.extras import needed
from volary.data.formats.numbers import as_float32
from volary.errors import DataError

_TEXT = ("string", "large_string", "string_view")
_BYTES = ("binary", "large_binary", "binary_view")


INPUTS = "numbers, or one column of encoded images"


def numbers(column: Any, path: str, name: str, accepted: str = INPUTS) -> NDArray[np.float32]:
    """The values of a file's column, NaN for null.

    Raises DataError for a column of something else than is accepted, and for a number that float32 has not.
    """
    arrow = needed("pyarrow", "parquet")
    column = _plain(column)
    kind, types = column.type, arrow.types
    if types.is_null(kind) or types.is_boolean(kind) or types.is_decimal(kind):
        column = column.cast(arrow.float64())
    elif not (types.is_integer(kind) or types.is_floating(kind)):
        raise DataError(f"{path}: {name} is of the type {kind}; accepted: {accepted}")
    values = column.to_numpy()  # a null makes float64 of integers
    return as_float32(values, lambda row: f"{path}: row {row}: {name}")


def labels(column: Any, where: str) -> list[str]:
    """The values as text, empty for null. Raises DataError for a column of something else than numbers and names."""
    arrow = needed("pyarrow", "parquet")
    column, types = _plain(column), arrow.types
    kind = column.type
    plain = types.is_null(kind) or types.is_boolean(kind) or types.is_integer(kind) or types.is_floating(kind)
    if not plain and str(kind) not in (*_TEXT, *_BYTES):
        raise DataError(f"{where} is of the type {kind}; accepted: whole numbers or names, one for each sample")
    try:
        found = column.cast(arrow.string()).dictionary_encode().combine_chunks()
    except arrow.ArrowInvalid as problem:
        raise DataError(f"{where} is no text in UTF-8 ({problem}); accepted: whole numbers or names") from problem
    kinds, numbered = [*found.dictionary.to_pylist(), ""], found.indices.fill_null(len(found.dictionary))
    return [kinds[number] for number in numbered.to_pylist()]


def encoded(column: Any) -> Any:
    """The column of bytes, which may be in a column of {bytes, path}; None if it is of something else."""
    arrow = needed("pyarrow", "parquet")
    column = _plain(column)
    if arrow.types.is_struct(column.type) and column.type.get_field_index("bytes") >= 0:
        column = _plain(needed("pyarrow.compute", "parquet").struct_field(column, "bytes"))
    if arrow.types.is_fixed_size_binary(column.type) or str(column.type) == "binary_view":
        column = column.cast(arrow.large_binary())
    return column if str(column.type) in _BYTES else None


def _plain(column: Any) -> Any:
    """Values themselves, where a file has numbered them or given their type a name of its own."""
    types = needed("pyarrow", "parquet").types
    if isinstance(column.type, needed("pyarrow", "parquet").ExtensionType):
        column = column.cast(column.type.storage_type)
    return column.cast(column.type.value_type) if types.is_dictionary(column.type) else column
