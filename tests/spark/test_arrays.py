"""Columns of a frame as arrays: what is refused by the types alone, and what Arrow's batches become."""

from __future__ import annotations

import datetime
import decimal

import numpy as np
import pytest

from volary.errors import BadInput
from volary.executors.arrays import arrays_of, layout_of, require_numbers

pa = pytest.importorskip("pyarrow")

TYPES = {"a": "int", "b": "decimal(10,2)", "day": "date", "pixels": "array<float>", "grid": "array<array<double>>"}
TYPES |= {"raw": "binary", "label": "bigint", "price": "double", "name": "string", "tags": "array<string>"}


@pytest.mark.parametrize(
    ("inputs", "target", "shape", "said"),
    [
        (["x"], "label", (), "data has no column 'x'; accepted: a, b, day, "),
        (["a"], "y", (), "data has no column 'y'"),
        ([], "label", (), "inputs is empty; accepted: one column or more, each once"),
        (["a", "a"], "label", (), "inputs is a, a; accepted: one column or more, each once"),
        (["name"], "label", (), r"column 'name' is string; accepted: numbers, dates, arrays"),
        (["tags"], "label", (), r"column 'tags' is array<string>; accepted"),
        (["a", "pixels"], "label", (), r"column 'pixels' is array<float>; accepted: one such column alone"),
        (["raw"], "label", (), r"column 'raw' is binary; accepted: with shape=\(1, 28, 28\)"),
        (["raw"], "label", (0, 3), r"shape is \(0, 3\); accepted: sizes of 1 or more"),
        (["a"], "name", (), r"targets: column 'name' is string; accepted: whole numbers"),
    ],
)
def test_columns_that_cannot_be_used_are_refused_by_their_types(inputs, target, shape, said):
    with pytest.raises(BadInput, match=said):
        layout_of(TYPES, inputs, target, shape)


@pytest.mark.parametrize(("name", "kind"), [("name", "string"), ("tags", "array<string>"), ("raw", "binary")])
def test_columns_of_functions_that_have_no_numbers_are_refused_by_their_types(name, kind):
    with pytest.raises(BadInput, match=rf"column '{name}' is {kind}; accepted: numbers, dates, arrays of numbers"):
        require_numbers(name, kind)
    require_numbers("grid", TYPES["grid"])


def batch() -> object:
    return pa.RecordBatch.from_pydict(
        {
            "a": pa.array([1, 2], pa.int32()),
            "b": pa.array([decimal.Decimal("1.50"), decimal.Decimal("2.25")]),
            "day": pa.array([datetime.date(1970, 1, 2), datetime.date(1970, 1, 11)]),
            "pixels": pa.array([[0.0, 1.0, 2.0], [3.0, 4.0, 5.0]], pa.list_(pa.float32())),
            "grid": pa.array([[[0.0, 1.0]], [[2.0, 3.0]]], pa.list_(pa.list_(pa.float64()))),
            "raw": pa.array([b"\x00\x01\x02\x03", b"\x04\x05\x06\xff"]),
            "label": pa.array([3, 9], pa.int64()),
            "price": pa.array([0.5, 1.5], pa.float64()),
        }
    )


@pytest.mark.parametrize(
    ("inputs", "shape", "values"),
    [
        (["a", "b", "day"], (), [[1, 1.5, 1], [2, 2.25, 10]]),
        (["pixels"], (), [[0, 1, 2], [3, 4, 5]]),
        (["pixels"], (3, 1), [[[0], [1], [2]], [[3], [4], [5]]]),
        (["grid"], (), [[[0, 1]], [[2, 3]]]),
    ],
)
def test_numbers_dates_and_arrays_become_float32(inputs, shape, values):
    found, targets = arrays_of(batch(), layout_of(TYPES, inputs, "label", shape))
    assert (found.dtype, targets.dtype) == (np.float32, np.int64)
    assert (found.tolist(), targets.tolist()) == (values, [3, 9])


def test_bytes_stay_bytes_in_their_shape_and_targets_that_are_not_whole_are_float32():
    found, targets = arrays_of(batch(), layout_of(TYPES, ["raw"], "price", (1, 2, 2)))
    assert found.dtype == np.uint8
    assert found.tolist() == [[[[0, 1], [2, 3]]], [[[4, 5], [6, 255]]]]
    assert (targets.dtype, targets.tolist()) == (np.float32, [0.5, 1.5])


@pytest.mark.parametrize(
    ("column", "shape", "said"),
    [
        (pa.array([1.0, None]), (), "column 'x' has 1 nulls in a batch"),
        (pa.array([[1.0], [1.0, 2.0]]), (), "column 'x' has 1 values in a row, 2 in another"),
        (pa.array([[1.0, None], [1.0, 2.0]]), (), "column 'x' has 1 nulls in a batch"),
        (pa.array([[1.0, 2.0]]), (3,), r"inputs have 2 values a row, and shape \(3,\) another number"),
        (pa.array([b"ab", b"abc"]), (2,), "column 'x' has 3 bytes in a row, and its shape 2 values"),
    ],
)
def test_nulls_and_values_that_do_not_fit_are_named_by_their_column(column, shape, said):
    kinds = {pa.float64(): "double", pa.binary(): "binary"}
    kind = kinds.get(column.type, "array<double>")
    rows = pa.RecordBatch.from_pydict({"x": column, "label": pa.array([0] * len(column))})
    with pytest.raises(BadInput, match=said):
        arrays_of(rows, layout_of({"x": kind, "label": "bigint"}, ["x"], "label", shape))
