"""A run's network over columns of Arrow, as a task of Spark calls it: without Spark, which only hands columns over."""

from __future__ import annotations

import pickle
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import save

from data._stores import put, s3_server
from volary import Session
from volary.errors import BadInput, CorruptSample, RunError
from volary.executors.arrays import layout_of
from volary.network.caffe.reading.binary import written
from volary.network.caffe.reading.text_writer import in_text
from volary.network.caffe.writing.prototxt import prototxt
from volary.spark.scoring import Scoring
from volary.spark.scoring_network import ScoringNetwork, session_of
from volary.train.model import build_network

pa = pytest.importorskip("pyarrow")

LIST = {"image": "array<float>", "raw": "binary", "a": "int", "b": "double"}


@pytest.fixture(scope="module")
def lenet(tmp_path_factory: pytest.TempPathFactory) -> tuple[ScoringNetwork, torch.nn.Module, Path]:
    """The network of a run as it travels, and as the run gives it; the run's folder."""
    session = Session(
        network="lenet",
        data={"source": "digits", "batch_size": 64},
        train={"steps": 4},
        evaluate={"every": "never"},
        run={"folder": str(tmp_path_factory.mktemp("runs")), "name": "it"},
    )
    result = session.train(show=False)
    return ScoringNetwork.of_run(result.directory.path), result.module, result.directory.path


def images(rows: int) -> np.ndarray:
    return np.random.default_rng(1).random((rows, 1, 28, 28), dtype=np.float32)


def scored(
    network: ScoringNetwork, column: object, name: str, outputs: Sequence[str], shape: Sequence[int] = ()
) -> list:
    """A task's answer, after the journey there."""
    scoring = Scoring.tried(network, layout_of(LIST, [name], shape=shape), outputs)
    there: Scoring = pickle.loads(pickle.dumps(scoring))
    return there.columns(column).to_pylist()


def test_class_probability_and_layers_are_those_of_the_module_whatever_the_batches_were(lenet):
    network, module, _ = lenet
    rows = images(300)  # more than go through the network at once
    found = scored(network, pa.array(rows.reshape(300, -1).tolist()), "image", ["prediction", "probability", "ip1"])
    with torch.no_grad():
        scores = module(torch.from_numpy(rows))
    assert [row["prediction"] for row in found] == scores.argmax(1).tolist()
    np.testing.assert_allclose([row["probability"] for row in found], scores.softmax(1).numpy(), atol=1e-5)
    assert len({len(row["ip1"]) for row in found}) == 1


def test_bytes_are_taken_as_values_from_0_to_1_and_the_columns_types_are_told(lenet):
    network, module, _ = lenet
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
        (["image"], ["ip9"], r"^outputs: the network has no layer 'ip9'; accepted: .*ip1"),
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


def test_image_files_are_prepared_as_the_run_s_validation_data(tmp_path):
    """A network that tells light from dark gets files of any size, which the source of its run decodes and resizes."""
    source = {"name": "images", "folder": str(tmp_path), "size": 4, "channels": 1}
    text = Session(network="softmax", data={"source": source, "batch_size": 6}, train={"steps": 1}).to_yaml()
    module = build_network(session_of(text), (1, 4, 4), 2)
    weight, bias = module.parameters()
    weight.data[0], weight.data[1], bias.data[:] = 0, 1, torch.tensor([0.0, -8.0])
    network = ScoringNetwork(text, (1, 4, 4), 2, save(module.state_dict()))
    files = []
    for name, value in (("light", 220), ("dark", 20), ("grey", 200)):
        Image.new("L", (7 + len(name), 9), value).save(tmp_path / f"{name}.png")
        files.append((tmp_path / f"{name}.png").read_bytes())
    scoring = Scoring.tried(network, layout_of(LIST, ["raw"], shape=(1, 4, 4)), ["prediction"], decodes=True)
    assert [row["prediction"] for row in scoring.columns(pa.array(files)).to_pylist()] == [1, 0, 1]
    with pytest.raises(CorruptSample, match="column 'raw', row 1 of a batch"):
        scoring.columns(pa.array([files[0], b"no image"]))


@pytest.mark.parametrize("kind", ["torch", "caffe"])
def test_a_file_of_weights_of_torch_or_caffe_scores_as_the_run_that_it_came_of(lenet, kind):
    _, module, _ = lenet
    if kind == "torch":
        torch.save(module.state_dict(), "net.pth")
        network = {"name": "lenet", "weights": "net.pth"}
    else:
        net = prototxt(module, (1, 28, 28), "lenet")
        Path("net.prototxt").write_text(in_text(net))
        Path("net.caffemodel").write_bytes(written(net))
        network = {"name": "caffe", "caffe": "net.prototxt", "weights": "net.caffemodel"}
    session = Session(network=network, data={"source": "digits", "batch_size": 64}, train={"steps": 1})
    rows = images(5)
    of_file = ScoringNetwork.of_session(session, (1, 28, 28), classes=10)
    column = pa.array(rows.reshape(5, -1).tolist())
    found = scored(of_file, column, "image", ["prediction", "ip1"])
    expected = scored(lenet[0], column, "image", ["prediction", "ip1"])
    assert [row["prediction"] for row in found] == [row["prediction"] for row in expected]
    np.testing.assert_allclose([row["ip1"] for row in found], [row["ip1"] for row in expected], atol=1e-5)


def test_a_session_that_names_no_weights_is_refused():
    session = Session(network="lenet", data={"source": "digits", "batch_size": 64}, train={"steps": 1})
    with pytest.raises(BadInput, match=r"names no weights; accepted: network\.weights=FILE, or VolaryModel\.from_run"):
        ScoringNetwork.of_session(session, (1, 28, 28))


@pytest.fixture(scope="module", params=["memory://runs", "s3://bucket/runs"])
def folder(request: pytest.FixtureRequest) -> Iterator[str]:
    """A folder in a store."""
    with s3_server() if request.param.startswith("s3") else nullcontext():
        yield request.param


def test_the_network_of_a_run_in_a_store_is_that_of_the_run_here(lenet, folder):
    put(lenet[2], f"{folder}/it")
    assert ScoringNetwork.of_run(f"{folder}/it") == lenet[0]
    with pytest.raises(RunError, match=f"{folder}/none: there is no run"):
        ScoringNetwork.of_run(f"{folder}/none")


def test_what_is_no_image_file_is_refused_where_files_are_to_be_decoded(lenet):
    with pytest.raises(BadInput, match="decode is true, and source 'digits' of the run reads no image files"):
        Scoring.tried(lenet[0], layout_of(LIST, ["raw"], shape=(1, 28, 28)), ["prediction"], decodes=True)
