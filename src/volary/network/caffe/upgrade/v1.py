"""Layers of 2014 as layers of today: the type is a text, and multipliers are with the parameter that they are of."""

from __future__ import annotations

from volary.network.caffe.findings import Findings
from volary.network.caffe.message import CaffeMessage

_TYPES = {  # where the text is not the enum's name in capitals: "POOLING" is "Pooling"
    "ABSVAL": "AbsVal",
    "ARGMAX": "ArgMax",
    "BNLL": "BNLL",
    "HDF5_DATA": "HDF5Data",
    "HDF5_OUTPUT": "HDF5Output",
    "LRN": "LRN",
    "MVN": "MVN",
    "RELU": "ReLU",
    "SOFTMAX_LOSS": "SoftmaxWithLoss",
    "TANH": "TanH",
    "NONE": "",
}
_OF_A_PARAMETER = {
    "param": "name",
    "blob_share_mode": "share_mode",
    "blobs_lr": "lr_mult",
    "weight_decay": "decay_mult",
}


def current_layer(layer: CaffeMessage, findings: Findings) -> CaffeMessage:
    """The layer of today that a V1 layer is."""
    found = CaffeMessage("Layer", layer.line)
    for field, values in layer.values.items():
        if field not in (*_OF_A_PARAMETER, "type", "layer"):
            found.add(field, *values, line=layer.line_of(field))
    if "type" in layer:
        old = layer.one("type")
        found.add("type", _TYPES.get(old, old.title().replace("_", "")), line=layer.line_of("type"))
    if "layer" in layer:
        findings.add("mixes layers of 2013 and 2014; accepted: one kind of them", layer.line, layer.one("name"))
    specs = [CaffeMessage("ParamSpec", layer.line) for _ in range(max(len(layer.all(f)) for f in _OF_A_PARAMETER))]
    for field, name in _OF_A_PARAMETER.items():
        for spec, value in zip(specs, layer.all(field), strict=False):
            spec.add(name, value, line=layer.line_of(field))
    if specs:
        found.add("param", *specs)
    return found
