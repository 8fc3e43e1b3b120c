"""Networks of 2013 and 2014 in today's form, inputs in all their forms, and the layers of a phase."""

import pytest

from volary.errors import SettingError
from volary.network.caffe.findings import Findings
from volary.network.caffe.phases import NetState, layers_in
from volary.network.caffe.reading.text import parse
from volary.network.caffe.reading.text_writer import in_text
from volary.network.caffe.upgrade.net import current


def net(text):
    findings = Findings("net.prototxt")
    found = current(parse(text, "Net", findings), findings)
    findings.raise_if_any()
    return found


TODAY = """
layer { name: "data" type: "Data" top: "data" transform_param { scale: 0.5 crop_size: 8 }
  data_param { source: "db" batch_size: 2 } }
layer { name: "conv" type: "Convolution" bottom: "data" top: "conv" param { lr_mult: 1 decay_mult: 1 }
  param { lr_mult: 2 decay_mult: 0 } convolution_param { num_output: 4 kernel_size: 3 pad: 1
  weight_filler { type: "gaussian" std: 0.1 } } }
layer { name: "relu" type: "ReLU" bottom: "conv" top: "conv" }
layer { name: "loss" type: "SoftmaxWithLoss" bottom: "conv" bottom: "label" top: "loss" }
"""
IN_2014 = """
layers { name: "data" type: DATA top: "data" data_param { scale: 0.5 crop_size: 8 source: "db" batch_size: 2 } }
layers { name: "conv" type: CONVOLUTION bottom: "data" top: "conv" blobs_lr: 1 blobs_lr: 2 weight_decay: 1
  weight_decay: 0 convolution_param { num_output: 4 kernel_size: 3 pad: 1 weight_filler { type: "gaussian" std: 0.1 } }
}
layers { name: "relu" type: RELU bottom: "conv" top: "conv" }
layers { name: "loss" type: SOFTMAX_LOSS bottom: "conv" bottom: "label" top: "loss" }
"""
IN_2013 = """
layers { layer { name: "data" type: "data" source: "db" batchsize: 2 scale: 0.5 cropsize: 8 } top: "data" }
layers { layer { name: "pad" type: "padding" pad: 1 } bottom: "data" top: "padded" }
layers { layer { name: "conv" type: "conv" num_output: 4 kernelsize: 3 blobs_lr: 1 blobs_lr: 2 weight_decay: 1
  weight_decay: 0 weight_filler { type: "gaussian" std: 0.1 } } bottom: "padded" top: "conv" }
layers { layer { name: "relu" type: "relu" } bottom: "conv" top: "conv" }
layers { layer { name: "loss" type: "softmax_loss" } bottom: "conv" bottom: "label" top: "loss" }
"""


def plain(message):
    """The values alone, in no order."""
    return {
        name: [plain(value) if hasattr(value, "values") else value for value in values]
        for name, values in message.values.items()
    }


@pytest.mark.parametrize("text", [IN_2014, IN_2013])
def test_old_networks_are_the_network_of_today(text):
    assert plain(net(text)) == plain(net(TODAY))


def test_an_input_is_the_same_in_all_forms():
    dims, shape = "input_dim: 1 input_dim: 3 input_dim: 8 input_dim: 9", "input_shape { dim: [1, 3, 8, 9] }"
    found = {in_text(net(f'input: "data" {text} layer {{ name: "r" type: "ReLU" }}')) for text in (dims, shape)}
    layer = 'layer { name: "input" type: "Input" top: "data" input_param { shape { dim: [1, 3, 8, 9] } } }'
    assert found == {in_text(net(f'{layer} layer {{ name: "r" type: "ReLU" }}'))}


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ('layer { name: "a" }\nlayers { name: "b" }', "net.prototxt:2: has layers of both forms"),
        ('input: "a"\ninput_dim: 3', "net.prototxt:1: has 1 input_dim for 1 inputs; accepted: four each"),
        ('layers { layer { name: "a" type: "odd" } }', "layer 'a': type 'odd' is no layer of 2013"),
        (
            'layers { layer { type: "padding" pad: 1 } bottom: "x" top: "p" }\n'
            'layers { layer { name: "r" type: "relu" } bottom: "p" top: "r" }',
            "net.prototxt:2: layer 'r': padding in front of a layer that is no conv or pool",
        ),
    ],
)
def test_what_cannot_be_upgraded_is_said_with_its_line(text, sentence):
    with pytest.raises(SettingError) as error:
        net(text)
    assert sentence in str(error.value)


def test_a_layer_is_there_where_its_rules_say_so():
    text = """
    layer { name: "always" }
    layer { name: "train" include { phase: TRAIN } }
    layer { name: "test" exclude { phase: TRAIN } }
    layer { name: "stage" include { phase: TEST stage: "one" not_stage: "two" } }
    layer { name: "level" include { min_level: 2 max_level: 3 } }
    """
    read, findings = net(text), Findings("net.prototxt")

    def names(*state):
        return [layer.one("name") for layer in layers_in(read, NetState(*state), findings)]

    assert names("TRAIN") == ["always", "train"]
    assert names("TEST") == ["always", "test"]
    assert names("TEST", 2, frozenset({"one"})) == ["always", "test", "stage", "level"]
    assert names("TEST", 4, frozenset({"one", "two"})) == ["always", "test"]
