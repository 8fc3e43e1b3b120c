"""`volary export` to .pt2 and .onnx: the network itself, with what is needed to use it, and the same outputs."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch

from cli.test_predict import KINDS, kinds
from volary import Result
from volary.data.data_names import DataNames
from volary.errors import VolaryError
from volary.session.spec import Session
from volary.train.exporting import onnx, pt2
from volary.train.exporting.traced import compared
from volary.train.model import build_network
from volary.train.predicting.predictor import Predictor

__all__ = ["kinds"]


def predictor(network: dict, shape: tuple[int, ...], dtype: torch.dtype, classes: int) -> Predictor:
    session = Session(network=network, data={"source": "digits"})
    torch.manual_seed(1)
    module = build_network(session, shape, classes).eval()
    return Predictor(module, session, DataNames((), classes), True, "", torch.device("cpu"), shape, dtype, module)


@pytest.mark.slow  # torch traces it for seconds
def test_a_pt2_is_read_without_volary_and_says_what_its_inputs_and_outputs_are(kinds: Result, volary) -> None:
    said = volary("export", "kinds", "-o", "kinds.pt2", "--json")
    assert json.loads(said.out)["difference"] < 1e-4
    about = {"volary.json": ""}
    read = torch.export.load("kinds.pt2", extra_files=about).module()
    inputs = torch.randn(5, 2)
    torch.testing.assert_close(read(inputs), kinds.module(inputs), rtol=1e-5, atol=1e-6)
    told = json.loads(about["volary.json"])
    assert (told["run"], told["step"], json.loads(told["class_names"])) == ("kinds", "40", list(KINDS))
    assert json.loads(told["columns"]) == ["x", "y"]
    mean, deviation = np.array(json.loads(told["column_statistics"])).T
    table = np.loadtxt("t.csv", delimiter=",", skiprows=1, usecols=(0, 1))
    np.testing.assert_allclose([mean, deviation], [table.mean(0), table.std(0)])
    preparation = json.loads(told["preprocessing"])
    assert (preparation["source"], preparation["standardise"]) == ("csv", True)
    assert "t.csv" not in json.dumps(told)
    assert "kinds.pt2 exists already" in volary("export", "kinds", "-o", "kinds.pt2").err


def test_a_form_that_computes_something_else_is_refused() -> None:
    of = predictor({"name": "softmax"}, (3,), torch.float32, 2)
    assert compared(of, of.module, "it") == 0
    with pytest.raises(VolaryError, match=r"it: outputs differ from the network's by .* of the largest; 0.0001 may be"):
        compared(of, lambda inputs: of.module(inputs) * 1.01, "it")
    with pytest.raises(VolaryError, match=r"it: gives the shape \(2, 1\), the network \(2, 2\)"):
        compared(of, lambda inputs: of.module(inputs)[:, :1], "it")


NETWORKS = {
    "lenet": ((1, 28, 28), torch.float32),
    "resnet": ((3, 32, 32), torch.float32),
    "gpt": ((12,), torch.int64),
    "lstm": ((12,), torch.int64),
}


@pytest.mark.slow  # torch traces each for seconds
@pytest.mark.parametrize("made", [pt2, onnx], ids=["pt2", "onnx"])
@pytest.mark.parametrize("name", NETWORKS)
def test_the_zoo_s_networks_compute_the_same_in_either_form(name: str, made, monkeypatch) -> None:
    if made is onnx:
        pytest.importorskip("onnxscript")
        monkeypatch.setattr(
            pytest.importorskip("tqdm").tqdm, "monitor_interval", 0
        )  # torch's bars would leave a thread
    content, difference = made.content(predictor({"name": name}, *NETWORKS[name], 10), {"run": "x"})
    assert difference < 1e-4
    if made is onnx:
        read = pytest.importorskip("onnx").load_from_string(content)
        assert [(one.key, one.value) for one in read.metadata_props if one.key == "run"] == [("run", "x")]
        sizes = [one.type.tensor_type.shape.dim[0].dim_param for one in (*read.graph.input, *read.graph.output)]
        assert sizes == ["batch", "batch"]
