"""Functions of tensors over blocks of rows: what they make is known before a job; without Spark."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from volary.errors import BadInput
from volary.spark.blocks import (
    TensorColumn,
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

pytest.importorskip("pyarrow")

X = {"x": TensorColumn(torch.float32, (3,))}


class Doubled(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(3, 2)

    def forward(self, x):
        return {"y": self.linear(x)}


def test_what_a_function_makes_of_blocks_and_of_rows_is_known_before_it_runs():
    assert parameters_of(Doubled()) == ["x"]
    assert mapped(Doubled(), X) == {"y": TensorColumn(torch.float32, (2,))}
    made = mapped_rows(lambda x: {"least": x.min(), "x2": torch.stack([x, x])}, X)
    assert [column.spark_type("") for column in made.values()] == ["float", "array<array<float>>"]


@pytest.mark.parametrize(
    ("function", "said"),
    [
        (lambda x: {"y": x.sum()}, r"result 'y' has the shape \(\) of a block of 2 rows; accepted: \(2, ...\)"),
        (lambda x: {"y": x @ torch.zeros(4, 4)}, r"does not take columns with x \(2, 3\): RuntimeError: "),
        (lambda x: x, "does not give tensors by name"),
        (lambda x: {"y": x.half()}, "result 'y' is of the type float16; accepted: float32"),
    ],
)
def test_shapes_and_types_that_do_not_fit_are_refused_before_it_runs(function, said):
    with pytest.raises(BadInput, match=said):
        [column.spark_type(name) for name, column in mapped(function, X).items()]


def test_parameters_are_columns_or_pairs_of_them():
    assert parameters_of(lambda x_1, x_2, y_1, y_2: {}, ("_1", "_2")) == ["x", "y"]
    for function, suffixes in (
        (lambda: {"y": torch.ones(1)}, ("",)),
        (lambda *x: {}, ("",)),
        (lambda x_1, y_2: {}, ("_1", "_2")),
    ):
        with pytest.raises(BadInput, match="a function of columns has the parameters"):
            parameters_of(function, suffixes)


def test_a_reduction_gives_the_same_columns_or_is_refused():
    require_reduction(lambda x: {"x": x.sum(0)}, X)
    require_pairing(lambda x_1, x_2: {"x": x_1 + x_2}, X)
    with pytest.raises(
        BadInput, match=r"gives x \(\) float32 of rows with x \(3,\) float32; accepted: the same columns"
    ):
        require_reduction(lambda x: {"x": x.sum()}, X)
    with pytest.raises(BadInput, match=r"gives y \(3,\) float32 of rows with"):
        require_pairing(lambda x_1, x_2: {"y": x_1}, X)


@pytest.mark.parametrize("shape", [(4,), (4, 3), (2, 3, 5), (3, 1, 2, 2)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.int64, torch.bool])
def test_values_are_the_same_after_the_way_to_arrow_and_back(shape, dtype):
    values = torch.arange(torch.Size(shape).numel()).reshape(shape).to(dtype)
    assert torch.equal(tensors_of({"x": arrow_of(values)})["x"], values)


@given(st.lists(st.integers(-9, 9), min_size=1, max_size=20), st.integers(1, 7))
def test_rows_reduced_by_blocks_of_any_size_by_pairs_and_one_by_one_come_to_the_same(rows, size):
    x = torch.tensor(rows)
    blocks = torch.stack([part.sum(0) for part in x.split(size)]).sum(0)
    assert folded(lambda x_1, x_2: {"x": x_1 + x_2}, {"x": x})["x"] == blocks == x.sum()
    assert torch.equal(by_row(lambda x: {"y": x * 2}, {"x": x})["y"], x * 2)
