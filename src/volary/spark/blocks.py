"""Functions of tensors over rows of a frame: what they make, worked out before a job, and their values, block by block.

A block is some rows of a partition; a column of it is a tensor (rows, ...). A function names its columns as parameters.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode

from volary.errors import BadInput
from volary.errors.raised import raised
from volary.executors.arrays import values_of

TensorFunction = Callable[..., Mapping[str, Tensor]]
_SPARK = {
    torch.float32: "float",
    torch.float64: "double",
    torch.int8: "tinyint",
    torch.int16: "smallint",
    torch.int32: "int",
    torch.int64: "bigint",
    torch.bool: "boolean",
}
_ROWS = (2, 3)  # of the blocks that a function is tried with: what follows them in its result are rows


@dataclass(frozen=True)
class TensorColumn:
    """The type of a column, and the shape of one row."""

    dtype: torch.dtype
    shape: tuple[int, ...]

    def spark_type(self, name: str) -> str:
        """The column's type, as Spark names it. Raises BadInput for a type that Spark has not."""
        if self.dtype not in _SPARK:
            kind, known = str(self.dtype).removeprefix("torch."), ", ".join(str(one)[6:] for one in _SPARK)
            raise BadInput(f"result {name!r} is of the type {kind}; accepted: {known}")
        return "array<" * len(self.shape) + _SPARK[self.dtype] + ">" * len(self.shape)


def parameters_of(function: TensorFunction, suffixes: Sequence[str] = ("",)) -> list[str]:
    """The columns that a function names. suffixes: what its parameters have behind a column's name, each of them.

    Raises BadInput for a function without parameters, or with others.
    """
    called = function.forward if isinstance(function, nn.Module) else function
    kinds = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    parameters = inspect.signature(called).parameters.values()
    named = [one.name for one in parameters if one.kind in kinds]
    columns = list(dict.fromkeys(name.removesuffix(end) for name in named for end in suffixes if name.endswith(end)))
    wanted = [f"{column}{end}" for column in columns for end in suffixes]
    if not columns or sorted(wanted) != sorted(named) or len(named) < len(parameters):
        accepted = " and ".join(f"NAME{end}" for end in suffixes)
        raise BadInput(f"a function of columns has the parameters {', '.join(named) or 'none'}; accepted: {accepted}")
    return columns


def mapped(function: TensorFunction, columns: Mapping[str, TensorColumn]) -> dict[str, TensorColumn]:
    """The columns that a function makes of blocks. Raises BadInput if it takes none such, or loses rows."""
    found = [_tried(function, _block(columns, rows)) for rows in _ROWS]
    for name, first in found[0].items():
        if [one[name].shape[:1] for one in found] != [(rows,) for rows in _ROWS]:
            raise BadInput(
                f"result {name!r} has the shape {tuple(first.shape)} of a block of {_ROWS[0]} rows; accepted: "
                f"({_ROWS[0]}, ...)"
            )
    return {name: TensorColumn(one.dtype, tuple(one.shape[1:])) for name, one in found[0].items()}


def mapped_rows(function: TensorFunction, columns: Mapping[str, TensorColumn]) -> dict[str, TensorColumn]:
    """The columns that a function makes of rows. Raises BadInput if it takes none such."""
    found = _tried(function, _block(columns, None))
    return {name: TensorColumn(one.dtype, tuple(one.shape)) for name, one in found.items()}


def require_reduction(function: TensorFunction, columns: Mapping[str, TensorColumn]) -> None:
    """Raise BadInput unless a function makes of a block one row of the same columns: then it can be applied again."""
    for rows in _ROWS:
        _require_same(_tried(function, _block(columns, rows)), columns)


def require_pairing(function: TensorFunction, columns: Mapping[str, TensorColumn]) -> None:
    """Raise BadInput unless a function of NAME_1 and NAME_2 makes a NAME of the same shape and type."""
    pairs = {f"{name}{end}": column for name, column in columns.items() for end in ("_1", "_2")}
    _require_same(_tried(function, _block(pairs, None)), columns)


def _require_same(found: Mapping[str, Tensor], columns: Mapping[str, TensorColumn]) -> None:
    made = {name: TensorColumn(one.dtype, tuple(one.shape)) for name, one in found.items()}
    if made != dict(columns):
        shapes = [
            ", ".join(f"{name} {one.shape} {str(one.dtype)[6:]}" for name, one in of.items()) for of in (made, columns)
        ]
        raise BadInput(f"a reduction gives {shapes[0]} of rows with {shapes[1]}; accepted: the same columns, one row")


def _tried(function: TensorFunction, block: Callable[[], dict[str, Tensor]]) -> dict[str, Tensor]:
    """Return what it makes of tensors without values: no data is read, and nothing is computed."""
    mode = FakeTensorMode(allow_non_fake_inputs=True)
    try:
        with mode, torch.no_grad():
            given = block()
            result = function(**given)
    except Exception as error:  # the user's code may raise anything
        shapes = ", ".join(f"{name} {tuple(one.shape)}" for name, one in given.items())
        raise BadInput(f"the function does not take columns with {shapes}: {raised(error).error}") from error
    if not isinstance(result, Mapping) or not result or not all(isinstance(one, Tensor) for one in result.values()):
        raise BadInput("the function does not give tensors by name; accepted: {'name': tensor, ...}")
    return dict(result)


def _block(columns: Mapping[str, TensorColumn], rows: int | None) -> Callable[[], dict[str, Tensor]]:
    front = () if rows is None else (rows,)
    return lambda: {name: torch.zeros((*front, *one.shape), dtype=one.dtype) for name, one in columns.items()}


def tensors_of(columns: Mapping[str, Any]) -> dict[str, Tensor]:
    """Tensors (rows, ...) of Arrow's columns. Raises BadInput for nulls, and rows that differ in size."""
    return {name: torch.from_numpy(np.array(values_of(column, name))) for name, column in columns.items()}


def arrow_of(values: Tensor) -> Any:
    """An Arrow column of values (rows, ...): numbers, or arrays, nested as often as a row has dimensions."""
    arrow: Any = import_module("pyarrow")
    array = values.detach().cpu().numpy()
    column = arrow.array(array.reshape(-1))
    for size, rows in zip(array.shape[:0:-1], np.cumprod(array.shape)[-2::-1], strict=True):
        column = arrow.ListArray.from_arrays(arrow.array(np.arange(rows + 1, dtype=np.int32) * size), column)
    return column


def by_row(function: TensorFunction, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return what a function of a row makes of each row of tensors (rows, ...), stacked; there is at least one row."""
    rows = len(next(iter(tensors.values())))
    made = [function(**{name: one[row] for name, one in tensors.items()}) for row in range(rows)]
    return {name: torch.stack([one[name] for one in made]) for name in made[0]}


def folded(function: TensorFunction, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return what a function of two rows makes of rows (rows, ...), one after the other; there is at least one."""
    rows = len(next(iter(tensors.values())))
    found = {name: one[0] for name, one in tensors.items()}
    for row in range(1, rows):
        pair = {f"{name}_1": one for name, one in found.items()}
        found = dict(function(**pair, **{f"{name}_2": one[row] for name, one in tensors.items()}))
    return found
