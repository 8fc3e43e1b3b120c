"""Networks written as Caffe's files, and read again: they compute the same."""

import numpy as np
import pytest
import torch
from torch import nn

from network.caffe._nets import computed, source_of
from network.caffe.test_python_source import EVERYTHING
from volary.errors import SettingError
from volary.network.caffe.module import build, inputs_of
from volary.network.caffe.reading.binary import written
from volary.network.caffe.reading.text_writer import in_text
from volary.network.caffe.writing.prototxt import prototxt
from volary.network.zoo import ROOM


def read_again(module, shape, tmp_path):
    """The network's outputs for a few random samples, and those after it was written and read again."""
    net = prototxt(module.eval(), shape, "it")
    (tmp_path / "it.caffemodel").write_bytes(written(net))
    values = np.random.default_rng(0).standard_normal((2, *shape)).astype(np.float32)
    with torch.no_grad():
        expected = module(torch.from_numpy(values)).numpy()
    return expected, computed(in_text(net), values, weights=tmp_path / "it.caffemodel")


@pytest.mark.parametrize(
    ("name", "shape"),
    [("lenet", (1, 28, 28)), ("cifar10_quick", (3, 32, 32)), ("alexnet", (3, 67, 67)), ("softmax", (4,))],
)
def test_sequences_of_the_zoo_are_written_and_read_again(tmp_path, name, shape):
    torch.manual_seed(0)
    module = ROOM.load(name)().build(shape, 10)
    expected, found = read_again(module, shape, tmp_path)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


def test_a_graph_with_layers_of_many_kinds_makes_the_round_trip(tmp_path):
    source = source_of(EVERYTHING)
    torch.manual_seed(1)
    module, _ = build(source, inputs_of(source))
    expected, found = read_again(module, (4, 9, 9), tmp_path)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


def test_norms_with_factors_become_two_layers_and_pools_that_round_down_say_so(tmp_path):
    torch.manual_seed(2)
    module = nn.Sequential(
        nn.Sequential(nn.Conv2d(2, 4, 3, padding=1, bias=False), nn.BatchNorm2d(4)),
        nn.LeakyReLU(0.3), nn.MaxPool2d(2), nn.AvgPool2d(3, 1, 1), nn.AdaptiveAvgPool2d(1), nn.Flatten(),
        nn.Linear(4, 3),
    )  # fmt: skip
    nn.init.uniform_(module[0][1].running_mean)
    nn.init.uniform_(module[0][1].weight)
    expected, found = read_again(module, (2, 7, 7), tmp_path)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)
    text = in_text(prototxt(module, (2, 7, 7), "it"))
    assert 'name: "0.1_scale"' in text
    assert "round_mode: FLOOR" in text


def test_all_layers_that_caffe_lacks_are_named():
    module = nn.Sequential(nn.Conv2d(1, 2, 3, padding_mode="circular", padding=1), nn.GELU(), nn.Flatten())
    with pytest.raises(SettingError) as error:
        prototxt(module, (1, 5, 5), "it")
    assert str(error.value).splitlines() == [
        "layer '0': padding is (1, 1) with circular; accepted: numbers, of zeros",
        "layer '1': Caffe has no layer for GELU",
    ]
    with pytest.raises(SettingError, match="the network is a LSTMCell; accepted: a sequence of layers, or a graph"):
        prototxt(nn.LSTMCell(2, 2), (2,), "it")
