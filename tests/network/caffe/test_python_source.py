"""A network as PyTorch code: somebody else's file computes the same, bit for bit, without Volary."""

import numpy as np
import pytest
import torch

from network.caffe._nets import input_layer, source_of
from volary.errors import SettingError
from volary.network.caffe.module import build, inputs_of
from volary.network.caffe.writing.python_source import python_source

EVERYTHING = input_layer((1, 4, 9, 9)) + """
layer { name: "conv/1x1" type: "Convolution" bottom: "data" top: "conv" convolution_param { num_output: 6 kernel_size: 3
  stride: 2 group: 2 weight_filler { type: "xavier" } bias_filler { value: 0.1 } } }
layer { name: "bn" type: "BatchNorm" bottom: "conv" top: "conv" }
layer { name: "scale" type: "Scale" bottom: "conv" top: "conv" scale_param { bias_term: true
  filler { type: "uniform" } } }
layer { name: "relu" type: "ReLU" bottom: "conv" top: "conv" relu_param { negative_slope: 0.2 } }
layer { name: "turns" type: "ShuffleChannel" bottom: "conv" top: "conv" shuffle_channel_param { group: 2 } }
layer { name: "norm" type: "LRN" bottom: "conv" top: "norm" lrn_param { norm_region: WITHIN_CHANNEL local_size: 3 } }
layer { name: "pool" type: "Pooling" bottom: "norm" top: "pool" pooling_param { pool: AVE kernel_size: 3
  stride: 2 pad: 1 } }
layer { name: "up" type: "Deconvolution" bottom: "pool" top: "up" convolution_param { num_output: 6 kernel_size: 2
  stride: 2
  weight_filler { type: "bilinear" } } }
layer { name: "crop" type: "Crop" bottom: "up" bottom: "pool" top: "crop" crop_param { axis: 2 offset: 1 } }
layer { name: "sum" type: "Eltwise" bottom: "crop" bottom: "pool" top: "sum" eltwise_param { coeff: 1 coeff: -0.5 } }
layer { name: "max" type: "Eltwise" bottom: "sum" bottom: "pool" top: "max" eltwise_param { operation: MAX } }
layer { name: "cut" type: "Slice" bottom: "max" top: "a" top: "b" slice_param { slice_point: 2 } }
layer { name: "power" type: "Power" bottom: "a" top: "a" power_param { power: 2 scale: 0.5 shift: 1 } }
layer { name: "join" type: "Concat" bottom: "b" bottom: "a" top: "join" }
layer { name: "turn" type: "Permute" bottom: "join" top: "turn" permute_param { order: [0, 2, 3, 1] } }
layer { name: "flat" type: "Reshape" bottom: "turn" top: "flat" reshape_param { shape { dim: 0 dim: -1 dim: 6 } } }
layer { name: "class" type: "InnerProduct" bottom: "flat" top: "class" inner_product_param { num_output: 5
  weight_filler { type: "gaussian" std: 0.2 } } }
layer { name: "clip" type: "Clip" bottom: "class" top: "class" clip_param { min: -1 max: 2 } }
layer { name: "exp" type: "Exp" bottom: "class" top: "class" exp_param { base: 2 scale: 0.5 shift: 1 } }
layer { name: "log" type: "Log" bottom: "class" top: "class" log_param { base: 10 shift: 1 } }
layer { name: "e" type: "Exp" bottom: "class" top: "class" }
layer { name: "tile" type: "Tile" bottom: "class" top: "class" tile_param { axis: -1 tiles: 2 } }
layer { name: "above" type: "Threshold" bottom: "class" top: "above" threshold_param { threshold: 0.25 } }
layer { name: "both" type: "Eltwise" bottom: "class" bottom: "above" top: "class" }
layer { name: "abs" type: "AbsVal" bottom: "class" top: "class" }
layer { name: "prob" type: "Softmax" bottom: "class" top: "prob" }
"""  # fmt: skip


def test_the_code_computes_the_same_with_the_same_values_and_needs_no_volary(tmp_path):
    source = source_of(EVERYTHING)
    inputs = inputs_of(source)
    torch.manual_seed(1)
    module, translation = build(source, inputs)
    module.eval()
    written = python_source(module, translation.graph, "Everything.")
    assert "volary" not in written.code
    assert "self.class_ = nn.Linear(" in written.code
    assert "self.conv_1x1 = nn.Conv2d(4, 6, kernel_size=(3, 3), stride=(2, 2), groups=2)" in written.code
    names = {}
    exec(compile(written.code, "net.py", "exec"), names)
    net = names["Net"]().eval()
    net.load_state_dict(written.state(module))
    values = torch.from_numpy(np.random.default_rng(0).standard_normal((3, 4, 9, 9)).astype(np.float32))
    with torch.no_grad():
        assert torch.equal(net(values), module(values))


def test_a_blob_that_is_read_before_and_after_a_layer_in_place_keeps_both_values():
    text = (
        input_layer((1, 3))
        + """
    layer { name: "power" type: "Power" bottom: "data" top: "x" }
    layer { name: "tanh" type: "TanH" bottom: "x" top: "x" }
    layer { name: "sum" type: "Eltwise" bottom: "x" bottom: "data" top: "y" }
    """
    )
    source = source_of(text)
    module, translation = build(source, inputs_of(source))
    names = {}
    exec(python_source(module, translation.graph, "It.").code, names)
    values = torch.randn(2, 3)
    assert torch.equal(names["Net"]()(values), module(values))


def test_a_layer_that_is_no_line_of_torch_s_is_refused():
    text = input_layer((1, 3), (1, 3)) + (
        'layer { name: "s" type: "Scale" bottom: "data" bottom: "other" top: "s" '
        "scale_param { axis: 0 bias_term: true } }"
    )
    source = source_of(text)
    module, translation = build(source, inputs_of(source))
    with pytest.raises(SettingError, match="layer 's': its kind has no line of torch's"):
        python_source(module, translation.graph, "It.")
