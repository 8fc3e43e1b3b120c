"""A frame that a network does not take is refused with two of its rows, without Spark."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from volary.errors import BadInput
from volary.executors.arrays import layout_of
from volary.session.spec import Session
from volary.spark.fitting import require_fit

pa = pytest.importorskip("pyarrow")
TYPES = {"x": "array<float>", "raw": "binary", "y": "int", "value": "double"}
LENET = Session(network="lenet", data={"source": "digits", "batch_size": 8})


def rows(**columns: Any) -> list[Any]:
    return [pa.RecordBatch.from_pydict(columns)]


def test_rows_that_the_network_takes_are_taken_and_leave_no_trace():
    torch.manual_seed(1)
    expected = torch.rand(1)
    torch.manual_seed(1)
    arrays = layout_of(TYPES, ["x"], "y", (1, 28, 28))
    require_fit(LENET, rows(x=[[0.5] * 784, [0.0] * 784], y=[0, 3]), arrays, 4)
    bytes_of = layout_of(TYPES, ["raw"], "y", (1, 28, 28))
    require_fit(LENET, [*rows(raw=[b"\x01" * 784], y=[0]), *rows(raw=[b"\x02" * 784], y=[1])], bytes_of, 2)
    assert torch.rand(1).equal(expected)


@pytest.mark.parametrize(
    ("inputs", "target", "shape", "columns", "said"),
    [
        (["x"], "y", (), {"x": [[0.5] * 5], "y": [0]}, "network 'lenet'.*5"),
        (["x"], "value", (1, 28, 28), {"x": [[0.5] * 784], "value": [0.5]}, r"network\.classes is not set"),
        (["x"], "y", (1, 28, 28), {"x": [[0.5] * 783], "y": [0]}, r"inputs have 783 values a row, and shape \(1, 28"),
        (["x"], "y", (), {"x": [[0.5], [0.5, 1.0]], "y": [0, 0]}, "column 'x' has 1 values in a row, 2 in another"),
        (["x"], "y", (), {"x": [[0.5], [0.5]], "y": [0, None]}, "column 'y' has 1 nulls in a batch"),
    ],
)
def test_rows_that_it_does_not_take_are_refused_in_a_sentence(inputs, target, shape, columns, said):
    with pytest.raises(BadInput, match=said) as refused:
        require_fit(LENET, rows(**columns), layout_of(TYPES, inputs, target, shape), 1 if target == "y" else None)
    assert "\n" not in str(refused.value)
