"""A run's network over columns of Arrow, as a task of Spark calls it: without Spark, which only hands columns over."""

from __future__ import annotations

import pickle
from collections.abc import Sequence

import numpy as np
import pytest
import torch

from volary import Session
from volary.errors import BadInput
from volary.executors.arrays import layout_of
from volary.spark.scoring import Scoring, ScoringNetwork

pa = pytest.importorskip("pyarrow")

LIST = {"image": "array<float>", "raw": "binary", "a": "int", "b": "double"}


@pytest.fixture(scope="module")
def lenet(tmp_path_factory: pytest.TempPathFactory) -> tuple[ScoringNetwork, torch.nn.Module]:
    """The network of a run as it travels, and as the run gives it."""
    session = Session(
        network="lenet",
        data={"source": "digits", "batch_size": 64},
        train={"steps": 4},
        evaluate={"every": "never"},
        run={"folder": str(tmp_path_factory.mktemp("runs")), "name": "it"},
    )
    result = session.train(show=False)
    return ScoringNetwork.of_run(result.directory.path), result.module


def images(rows: int) -> np.ndarray:
    return np.random.default_rng(1).random((rows, 1, 28, 28), dtype=np.float32)


def scored(
    network: ScoringNetwork, column: object, name: str, outputs: Sequence[str], shape: Sequence[int] = ()
) -> list:
    """What a task answers, after the journey there."""
    scoring = Scoring.tried(network, layout_of(LIST, [name], shape=shape), outputs)
    there: Scoring = pickle.loads(pickle.dumps(scoring))
    return there.columns(column).to_pylist()


def test_class_probability_and_layers_are_those_of_the_module_whatever_the_batches_were(lenet):
    network, module = lenet
    rows = images(300)  # more than go through the network at once
    found = scored(network, pa.array(rows.reshape(300, -1).tolist()), "image", ["prediction", "probability", "ip1"])
    with torch.no_grad():
        scores = module(torch.from_numpy(rows))
    assert [row["prediction"] for row in found] == scores.argmax(1).tolist()
    np.testing.assert_allclose([row["probability"] for row in found], scores.softmax(1).numpy(), atol=1e-5)
    assert len({len(row["ip1"]) for row in found}) == 1


def test_bytes_are_taken_as_values_from_0_to_1_and_the_columns_types_are_told(lenet):
    network, module = lenet
    rows = (images(3) * 255).astype(np.uint8)
    column = pa.array([row.tobytes() for row in rows])
    found = scored(network, column, "raw", ["prediction"], (1, 28, 28))
    with torch.no_grad():
        scores = module(torch.from_numpy(rows.astype(np.float32) / 255))
    assert [row["prediction"] for row in found] == scores.argmax(1).tolist()
    scoring = Scoring.tried(network, layout_of(LIST, ["image"]), ["prediction", "ip1"])
    assert scoring.schema() == "`prediction` double, `ip1` array<float>"
    assert scoring.columns(pa.array([], pa.list_(pa.float32()))).to_pylist() == []


@pytest.mark.parametrize(
    ("inputs", "outputs", "said"),
    [
        (["image"], ["ip9"], r"the network has no layer 'ip9'; accepted: .*ip1"),
        (["image"], [], "outputs is empty; accepted: names, each once"),
        (["image"], ["ip1", "ip1"], "outputs is ip1, ip1; accepted: names, each once"),
        (["a", "b"], ["prediction"], r"inputs are 2 columns of numbers, and the network takes \(1, 28, 28\)"),
    ],
)
def test_what_the_network_does_not_take_or_have_is_refused_on_the_driver(lenet, inputs, outputs, said):
    with pytest.raises(BadInput, match=said):
        Scoring.tried(lenet[0], layout_of(LIST, inputs), outputs)


def test_arrays_of_another_size_than_the_network_takes_are_named(lenet):
    with pytest.raises(BadInput, match=r"the network takes \(1, 28, 28\), not \(5,\)"):
        scored(lenet[0], pa.array([[0.0] * 5]), "image", ["prediction"])
