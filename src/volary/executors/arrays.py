"""Columns of a frame as arrays: which types there are, checked before anything starts, and each batch's values."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from volary.errors import BadInput

Kind = Literal["numbers", "array", "bytes"]
_NUMBER = re.compile(r"(?:boolean|tinyint|smallint|int|bigint|float|double|date|decimal\(\d+,\d+\))")
_WHOLE = ("boolean", "tinyint", "smallint", "int", "bigint")
_ARRAY = re.compile(rf"(?:array<)+{_NUMBER.pattern}>+")
ACCEPTED = "numbers, dates, arrays of numbers (also nested), binary with data of `shape`, vectors of pyspark.ml"


@dataclass(frozen=True)
class ColumnLayout:
    """The columns that are read of a frame. shape: of one input; empty: as the column has it. target: may be none.

    numbers: columns of one number each, together (columns,) float32; array: one column, float32; bytes: one column of
    raw uint8, which become float32 from 0 to 1. whole: whether targets are whole numbers, int64, or else float32.
    """

    inputs: Sequence[str]
    target: str
    kind: Kind
    shape: Sequence[int]
    whole: bool


def layout_of(
    types: Mapping[str, str], inputs: Sequence[str], target: str = "", shape: Sequence[int] = ()
) -> ColumnLayout:
    """The layout of columns. types: of all columns of the frame, by name, in Spark's words. Raises BadInput."""
    for name in (*inputs, *filter(None, [target])):
        if name not in types:
            raise BadInput(f"data has no column {name!r}; accepted: {', '.join(types)}")
    if not inputs or len(set(inputs)) < len(inputs):
        raise BadInput(f"inputs is {', '.join(inputs) or 'empty'}; accepted: one column or more, each once")
    kinds = {name: _kind(name, types[name]) for name in inputs}
    kind = kinds[inputs[0]]
    if len(inputs) > 1 and set(kinds.values()) != {"numbers"}:
        other = next(name for name in inputs if kinds[name] != "numbers")
        raise BadInput(f"inputs: column {other!r} is {types[other]}; accepted: one such column alone, or numbers")
    if kind == "bytes" and not shape:
        raise BadInput(f"inputs: column {inputs[0]!r} is binary; accepted: with shape=(1, 28, 28), say, that it has")
    if any(size < 1 for size in shape):
        raise BadInput(f"shape is {tuple(shape)}; accepted: sizes of 1 or more")
    answer = types[target] if target else "bigint"
    if not _has_numbers(answer):
        raise BadInput(f"targets: column {target!r} is {answer}; accepted: whole numbers, numbers, arrays of numbers")
    return ColumnLayout(list(inputs), target, kind, list(shape), answer in _WHOLE)


def require_numbers(name: str, type_name: str) -> None:
    """Raise BadInput unless a column of this type, in Spark's words, has numbers or arrays of them."""
    if not _has_numbers(type_name):
        raise BadInput(f"column {name!r} is {type_name}; accepted: numbers, dates, arrays of numbers (also nested)")


def _has_numbers(type_name: str) -> bool:
    return bool(_NUMBER.fullmatch(type_name) or _ARRAY.fullmatch(type_name))


def _kind(name: str, type_name: str) -> Kind:
    if _NUMBER.fullmatch(type_name):
        return "numbers"
    if _ARRAY.fullmatch(type_name):
        return "array"
    if type_name == "binary":
        return "bytes"
    raise BadInput(f"inputs: column {name!r} is {type_name}; accepted: {ACCEPTED}")


def arrays_of(batch: Any, layout: ColumnLayout) -> tuple[NDArray[Any], NDArray[Any]]:
    """Inputs (rows, ...) and targets (rows, ...) of an Arrow batch with these columns; raises as `inputs_of`."""
    targets = values_of(batch.column(layout.target), layout.target)
    return inputs_of(batch, layout), targets.astype(np.int64 if layout.whole else np.float32, copy=False)


def inputs_of(batch: Any, layout: ColumnLayout) -> NDArray[Any]:
    """Inputs (rows, ...) of an Arrow batch that has the layout's columns.

    Raises BadInput for a null, for arrays that differ in size within a column, and for bytes that do not fit the shape.
    """
    inputs: NDArray[Any]
    if layout.kind == "bytes":
        inputs = _bytes(batch.column(layout.inputs[0]), layout.inputs[0], math.prod(layout.shape))
    elif layout.kind == "array":
        inputs = values_of(batch.column(layout.inputs[0]), layout.inputs[0]).astype(np.float32, copy=False)
    else:
        columns = [values_of(batch.column(name), name) for name in layout.inputs]
        inputs = np.stack([column.astype(np.float32, copy=False) for column in columns], axis=1)
    return _reshaped(inputs, layout) if layout.shape else inputs


def values_of(column: Any, name: str) -> NDArray[Any]:
    """The numbers of a column, (rows,), or of arrays (rows, ...). Raises BadInput for nulls and differing sizes."""
    arrow: Any = import_module("pyarrow")
    refuse_null(column, name)
    kind = column.type
    if arrow.types.is_list(kind) or arrow.types.is_large_list(kind) or arrow.types.is_fixed_size_list(kind):
        compute: Any = import_module("pyarrow.compute")
        sizes = compute.list_value_length(column).to_numpy(zero_copy_only=False)
        if len(sizes) and (sizes != sizes[0]).any():
            row = int(np.flatnonzero(sizes != sizes[0])[0])
            raise BadInput(
                f"column {name!r} has {sizes[0]} values in a row, {sizes[row]} in another; accepted: one size"
            )
        inner = values_of(column.flatten(), name)
        return inner.reshape(len(column), int(sizes[0]) if len(sizes) else 0, *inner.shape[1:])
    if arrow.types.is_date(kind):
        column = column.cast(arrow.int32())  # days
    elif arrow.types.is_decimal(kind):
        column = column.cast(arrow.float64())
    values: NDArray[Any] = column.to_numpy(zero_copy_only=False)
    return values


def _bytes(column: Any, name: str, size: int) -> NDArray[np.uint8]:
    """The bytes of each row, (rows, size)."""
    compute: Any = import_module("pyarrow.compute")
    refuse_null(column, name)
    sizes = compute.binary_length(column).to_numpy(zero_copy_only=False)
    if (sizes != size).any():
        raise BadInput(f"column {name!r} has {sizes[sizes != size][0]} bytes in a row, and its shape {size} values")
    arrow: Any = import_module("pyarrow")
    _, offsets, values = column.cast(arrow.large_binary()).buffers()
    first = np.frombuffer(offsets, np.int64)[column.offset] if len(column) else 0
    joined = np.frombuffer(values or b"", np.uint8)[first : first + len(column) * size]
    return joined.reshape(len(column), size)


def _reshaped(inputs: NDArray[Any], layout: ColumnLayout) -> NDArray[Any]:
    if len(inputs) and inputs[0].size != math.prod(layout.shape):
        raise BadInput(f"inputs have {inputs[0].size} values a row, and shape {tuple(layout.shape)} another number")
    return inputs.reshape(len(inputs), *layout.shape)


def refuse_null(column: Any, name: str) -> None:
    """Raise BadInput if an Arrow column has nulls."""
    if column.null_count:
        raise BadInput(f"column {name!r} has {column.null_count} nulls in a batch; accepted: none (df.dropna)")
