"""Functions of tensors over the columns of a frame: `map_blocks`, `map_rows`, reductions, groups."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib import import_module
from typing import Any

import torch
from torch import Tensor

from volary.errors import BadInput
from volary.executors.arrays import require_numbers, values_of
from volary.executors.sent import sent
from volary.spark.blocks import (
    TensorColumn,
    TensorFunction,
    arrow_of,
    by_row,
    folded,
    mapped,
    mapped_rows,
    parameters_of,
    require_pairing,
    require_reduction,
    tensors_of,
)
from volary.spark.running import AS_ARRAYS, said_plainly, without_vectors

_MADE = "volary_made"
_AT_ONCE = 16  # partial results that one task, or the driver, puts together
_PAIR = ("_1", "_2")
Shapes = Mapping[str, Sequence[int]]
_Apply = Callable[[dict[str, Tensor]], Mapping[str, Tensor]]


def map_blocks(fetches: TensorFunction, frame: Any, shapes: Shapes | None = None) -> Any:
    """The frame and, as columns more, what `fetches(column=..., ...)` makes of its blocks of rows: a dict of tensors.

    fetches: a function, or a torch module, whose parameters are names of columns; each is a tensor (rows, ...), and so
    must be what it gives. shapes: of one row, for columns of arrays; default: as the first row has them. Raises
    BadInput before a job starts if types or shapes do not fit.
    """
    columns = _columns(frame, parameters_of(fetches), shapes)
    return _with(frame, columns, mapped(fetches, columns), lambda tensors: fetches(**tensors))


def map_rows(fetches: TensorFunction, frame: Any, shapes: Shapes | None = None) -> Any:
    """The same, row by row: tensors are of one row's shape. Raises as `map_blocks`."""
    columns = _columns(frame, parameters_of(fetches), shapes)
    return _with(frame, columns, mapped_rows(fetches, columns), lambda tensors: by_row(fetches, tensors))


def reduce_blocks(fetches: TensorFunction, frame: Any, shapes: Shapes | None = None) -> dict[str, Tensor]:
    """One row of all rows: `fetches(column=..., ...)` makes one of a block (rows, ...), and then of such rows again.

    The order and the size of blocks is Spark's, so the function must not depend on it, as sums and extremes do not.
    Partial results are put together in a tree of tasks. Raises as `map_blocks`, BadInput for an empty frame, and
    VolaryError, with what Python raised first, if it cannot be computed.
    """
    columns = _columns(frame, parameters_of(fetches), shapes)
    require_reduction(fetches, columns)
    return _reduced(frame, columns, lambda tensors: fetches(**tensors))


def reduce_rows(fetches: TensorFunction, frame: Any, shapes: Shapes | None = None) -> dict[str, Tensor]:
    """The same by a function of two rows: `fetches(x_1=..., x_2=...)` gives `x` of both. Raises as `reduce_blocks`."""
    columns = _columns(frame, parameters_of(fetches, _PAIR), shapes)
    require_pairing(fetches, columns)
    return _reduced(frame, columns, lambda tensors: folded(fetches, tensors))


def aggregate(fetches: TensorFunction, grouped: Any, frame: Any, shapes: Shapes | None = None) -> Any:
    """A frame with a row for each group of `grouped`, which is `frame.groupBy(...)`: its keys, and what `fetches` makes
    of its rows, as `reduce_blocks` does. Raises as that.
    """
    columns = _columns(frame, parameters_of(fetches), shapes)
    require_reduction(fetches, columns)
    keys = grouped.count().columns[:-1]

    def reduce(table: Any) -> Any:
        arrow: Any = import_module("pyarrow")
        made = fetches(**tensors_of({name: table.column(name).combine_chunks() for name in columns}))
        found = {key: table.column(key).slice(0, 1).combine_chunks() for key in keys}
        return arrow.table(found | {name: arrow_of(made[name].unsqueeze(0)) for name in columns})

    kinds = dict(frame.dtypes)
    schema = ", ".join([*(f"`{key}` {kinds[key]}" for key in keys), _schema(columns)])
    reduced = sent(reduce)
    return grouped.applyInArrow(lambda table: reduced(table), schema)  # Spark counts the parameters


def analyze(frame: Any) -> dict[str, tuple[int | None, ...]]:
    """The shape of a row of each column of numbers and arrays, by name; None for a size that differs between rows.

    One job over all rows. Raises BadInput for an empty frame, and for nulls.
    """
    sizes: dict[str, Any] = {}
    functions = import_module("pyspark.sql.functions")
    for name, kind in frame.dtypes:
        depth, column = len(re.findall("array<", kind)), functions.col(f"`{name}`")
        for level in range(depth):
            size = functions.size(column)
            sizes[f"{name} {level}"] = (size, column)
            column = functions.element_at(column, 1)
    extremes = [
        end(size).alias(f"{label} {at}")
        for label, (size, _) in sizes.items()
        for at, end in (("least", functions.min), ("most", functions.max))
    ]
    there = [functions.count(functions.col(f"`{name}`")).alias(f"{name} values") for name in frame.columns]
    with said_plainly():
        (row,) = frame.select(functions.count("*").alias("rows"), *there, *extremes).collect()
    if not row["rows"]:
        raise BadInput("the frame is empty; accepted: one with rows")
    for name in frame.columns:
        if nulls := row["rows"] - row[f"{name} values"]:
            raise BadInput(f"column {name!r} has {nulls} nulls; accepted: none (df.dropna)")
    found: dict[str, tuple[int | None, ...]] = {}
    for name, kind in frame.dtypes:
        levels = [f"{name} {level}" for level in range(kind.count("array<"))]
        found[name] = tuple(
            row[f"{label} least"] if row[f"{label} least"] == row[f"{label} most"] else None for label in levels
        )
    return found


def _columns(frame: Any, names: Sequence[str], shapes: Shapes | None) -> dict[str, TensorColumn]:
    """The columns' types and shapes: types by the schema, their shapes as given, or as the first row has them."""
    kinds: dict[str, str] = dict(frame.dtypes)
    for name in names:
        if name not in kinds:
            raise BadInput(f"the frame has no column {name!r}; accepted: {', '.join(kinds)}")
        require_numbers(name, AS_ARRAYS.get(kinds[name], kinds[name]))
    given = dict(shapes or {})
    unknown = [name for name in names if kinds[name].startswith("array") or kinds[name] == "vector"]
    with said_plainly():
        first = frame.select(*(without_vectors(frame, name).alias(name) for name in names)).limit(1).toArrow()
    if not first.num_rows:
        raise BadInput("the frame is empty; accepted: one with rows")
    found = {}
    for name in names:
        values = torch.from_numpy(values_of(first.column(name).combine_chunks(), name).copy())  # to be writable
        shape = tuple(given.get(name, values.shape[1:])) if name in unknown else ()
        found[name] = TensorColumn(values.dtype, shape)
    return found


def _schema(columns: Mapping[str, TensorColumn]) -> str:
    return ", ".join(f"`{name}` {column.spark_type(name)}" for name, column in columns.items())


def _with(frame: Any, columns: Mapping[str, TensorColumn], made: Mapping[str, TensorColumn], apply: _Apply) -> Any:
    if taken := [name for name in made if name in frame.columns]:
        raise BadInput(f"result {taken[0]!r} is a column of the frame already; accepted: names that it has not")
    functions = import_module("pyspark.sql.functions")
    names, results = list(columns), list(made)

    def block(*given: Any) -> Any:
        arrow: Any = import_module("pyarrow")
        if not len(given[0]):
            return arrow.array([], arrow.struct([]))
        found = apply(tensors_of(dict(zip(names, given, strict=True))))
        return arrow.StructArray.from_arrays([arrow_of(found[name]) for name in results], names=results)

    call = functions.arrow_udf(sent(block), returnType=_schema(made), functionType=functions.ArrowUDFType.SCALAR)
    with_all = frame.withColumn(_MADE, call(*(without_vectors(frame, name) for name in names)))
    return with_all.select(*frame.columns, *(functions.col(f"{_MADE}.`{name}`").alias(name) for name in results))


def _reduced(frame: Any, columns: Mapping[str, TensorColumn], apply: _Apply) -> dict[str, Tensor]:
    names = list(columns)

    def partial(batches: Iterator[Any]) -> Iterator[Any]:
        arrow: Any = import_module("pyarrow")
        rows = [
            _one_row(apply, tensors_of({name: one.column(name) for name in names})) for one in batches if one.num_rows
        ]
        if rows:
            found = _one_row(apply, {name: torch.cat([row[name] for row in rows]) for name in names})
            yield arrow.RecordBatch.from_pydict({name: arrow_of(found[name]) for name in names})

    rows = frame.select(*(without_vectors(frame, name).alias(name) for name in names))
    parts = rows.mapInArrow(sent(partial), _schema(columns))
    number = import_module("pyspark.sql.functions").spark_partition_id().alias("n")
    with said_plainly():
        tasks = rows.select(number).agg({"n": "max"}).first()
        count = 1 + int(tasks[0] or 0)
        while count > _AT_ONCE:
            count = -(-count // _AT_ONCE)
            parts = parts.repartition(count).mapInArrow(sent(partial), _schema(columns))
        table = parts.toArrow()
    if not table.num_rows:
        raise BadInput("the frame is empty; accepted: one with rows")
    return dict(apply(tensors_of({name: table.column(name).combine_chunks() for name in names})))


def _one_row(apply: _Apply, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name: one.unsqueeze(0) for name, one in apply(tensors).items()}
