"""Networks of Caffe's that cannot be had, and weights that do not fit them: a sentence each, all at once."""

import numpy as np
import pytest
import torch

from network.caffe._nets import caffemodel, computed, input_layer, source_of
from volary.errors import SettingError
from volary.network.caffe.module import build, inputs_of
from volary.network.caffe.weights.files import read_weights
from volary.network.caffe.weights.loading import load

NET = (
    input_layer((1, 1, 8, 8))
    + """
layer { name: "conv" type: "Convolution" bottom: "data" top: "conv" convolution_param { num_output: 2 kernel_size: 3
  weight_filler { type: "xavier" } } }
layer { name: "bn" type: "BatchNorm" bottom: "conv" top: "conv" }
layer { name: "ip" type: "InnerProduct" bottom: "conv" top: "ip" inner_product_param {
  num_output: 3 bias_term: false } }
"""
)
BLOBS = {
    "conv": [np.ones((2, 1, 3, 3)), np.ones(2)],
    "bn": [np.zeros(2), np.ones(2), np.ones(1)],
    "ip": [np.ones((3, 72))],
}


@pytest.mark.parametrize("legacy", [False, True])
def test_weights_of_either_form_are_loaded_by_the_names_of_layers(tmp_path, legacy):
    image = np.ones((1, 1, 8, 8), dtype=np.float32)
    file = caffemodel(tmp_path / "w", {"of another": [np.ones(3)]} | BLOBS, legacy=legacy)
    found = computed(NET, image, weights=file)
    np.testing.assert_allclose(found, np.full((1, 3), 720 / np.sqrt(1 + 1e-5)), rtol=1e-5)


def test_all_that_does_not_fit_is_said_at_once_with_line_and_layer(tmp_path):
    file = caffemodel(tmp_path / "w", {"conv": [np.ones((2, 1, 5, 5)), np.ones(2)], "bn": [np.zeros(2)]})
    with pytest.raises(SettingError) as error:
        computed(NET, np.ones((1, 1, 8, 8)), weights=file)
    assert str(error.value).splitlines() == [
        "net.prototxt:3: layer 'conv': blob 0 has the shape 2x1x5x5 in the weights; accepted: 2x1x3x3",
        "net.prototxt:5: layer 'bn': has 1 blobs in the weights; accepted: 3",
        "net.prototxt:6: layer 'ip': has no blobs in the weights; accepted: weights of this network, or "
        "network.missing=fresh",
    ]


def test_layers_that_weights_lack_may_start_anew_and_others_never_by_chance(tmp_path):
    source = source_of(NET)
    module, translation = build(source, inputs_of(source))
    torch.nn.init.constant_(module.get_submodule("ip").weight, 7.0)
    load(
        module,
        translation,
        read_weights(caffemodel(tmp_path / "w", {"conv": BLOBS["conv"]})),
        source.findings,
        fresh=True,
    )
    assert module.get_submodule("ip").weight.unique().tolist() == [7.0]
    assert torch.equal(module.get_submodule("conv").weight, torch.ones(2, 1, 3, 3))


def test_parameters_without_a_filler_are_0_as_in_caffe_and_named_ones_are_one():
    source = source_of(
        input_layer((1, 4)) + 'layer { name: "a" type: "InnerProduct" bottom: "data" top: "a" param { name: "w" } '
        'inner_product_param { num_output: 4 weight_filler { type: "gaussian" std: 1 } } }\n'
        'layer { name: "b.1" type: "InnerProduct" bottom: "a" top: "b" param { name: "w" } '
        "inner_product_param { num_output: 4 } }"
    )
    module, _ = build(source, inputs_of(source))
    assert module.get_submodule("a").weight is module.get_submodule("b_1").weight
    assert torch.count_nonzero(module.get_submodule("a").bias) == 0


@pytest.mark.parametrize(
    ("text", "sentences"),
    [
        (
            'layer { name: "a" type: "Convolutoin" }\nlayer { name: "b" type: "Python" }\nlayer { type: "ReLU" }',
            [
                "net.prototxt:1: layer 'a': type: unknown name 'Convolutoin'; did you mean 'Convolution'? Known:",
                "net.prototxt:2: layer 'b': type 'Python' is code of somebody's own; accepted:",
                "net.prototxt:3: a layer has no name",
            ],
        ),
        ("name: 'empty'", ["net.prototxt: has no layers; accepted: a network"]),
        (
            'layer { name: "a" type: "ReLU" }\nlayer { name: "a" type: "ReLU" }',
            ["net.prototxt:2: layer 'a': the name is given twice (also in line 1)"],
        ),
        (
            input_layer((1, 1, 4, 4)) + 'layer { name: "p" type: "Pooling" bottom: "data" top: "p" }\n'
            'layer { name: "c" type: "Convolution" bottom: "date" top: "c" convolution_param { num_output: 1 } }\n'
            'layer { name: "after" type: "ReLU" bottom: "c" top: "c" }'
            'layer { name: "d" type: "Convolution" bottom: "data" top: "d" convolution_param { kernel_size: 9 '
            "num_output: 1 } }\n"
            'layer { name: "e" type: "Pooling" bottom: "data" top: "e" top: "mask" pooling_param { kernel_size: 2 } }',
            [
                "net.prototxt:2: layer 'p': kernel_size is missing; accepted: a whole number from 1",
                "net.prototxt:3: layer 'c': no layer makes its bottom 'date'",
                "net.prototxt:4: layer 'd': has a window of 9, larger than the padded side 4",
                "net.prototxt:5: layer 'e': has a second top, the mask of the largest values; accepted: one top",
            ],
        ),
        (
            input_layer((1, 4)) + 'layer { name: "i" type: "InnerProduct" bottom: "data" top: "i" '
            'inner_product_param { num_output: 2 weight_filler { type: "orthogonal" } } }',
            ["net.prototxt:2: layer 'i': weight_filler is 'orthogonal'; accepted: constant, gaussian, uniform"],
        ),
    ],
)  # fmt: skip
def test_layers_that_cannot_be_had_are_named_with_their_lines_all_at_once(text, sentences):
    with pytest.raises(SettingError) as error:
        source = source_of(text)
        build(source, inputs_of(source))
    lines = str(error.value).splitlines()
    assert len(lines) == len(sentences), lines
    for line, sentence in zip(lines, sentences, strict=True):
        assert line.startswith(sentence), line


def test_an_input_without_a_shape_is_asked_for():
    source = source_of('layer { name: "d" type: "Data" top: "data" top: "label" data_param { source: "x" } }')
    with pytest.raises(SettingError, match="has no shape for its input 'data'; accepted: the shape of a sample"):
        inputs_of(source)
    assert inputs_of(source, (3, 8, 8)) == {"data": (3, 8, 8)}


def test_what_changes_nothing_is_listed_with_the_reason():
    source = source_of(
        "force_backward: true\n" + input_layer((1, 1, 4, 4)) + 'layer { name: "p" type: "Pooling" bottom: "data" '
        'top: "p" pooling_param { kernel_size: 2 engine: CAFFE } }\nlayer { name: "s" type: "Silence" bottom: "p" }'
    )
    build(source, inputs_of(source))
    assert source.findings.ignored == [
        "net.prototxt:1: force_backward is ignored: gradients are computed where they are needed",
        "net.prototxt:4: layer 's': type 'Silence' is left out: it computes nothing",
        "net.prototxt:3: layer 'p': engine is ignored: it says on which of Caffe's implementations a layer runs",
    ]
