"""Layers of 2013 as layers of 2014: all settings in one message, the padding as a layer of its own."""

from __future__ import annotations

from volary.network.caffe.findings import Findings
from volary.network.caffe.message import CaffeMessage
from volary.network.caffe.schema.table import kind

_PADDING = "padding"
TYPES = {  # a V0 type: the V1 type, and the field that has its settings
    "accuracy": ("ACCURACY", ""),
    "bnll": ("BNLL", ""),
    "concat": ("CONCAT", "concat_param"),
    "conv": ("CONVOLUTION", "convolution_param"),
    "data": ("DATA", "data_param"),
    "dropout": ("DROPOUT", "dropout_param"),
    "euclidean_loss": ("EUCLIDEAN_LOSS", ""),
    "flatten": ("FLATTEN", ""),
    "hdf5_data": ("HDF5_DATA", "hdf5_data_param"),
    "hdf5_output": ("HDF5_OUTPUT", ""),
    "im2col": ("IM2COL", ""),
    "images": ("IMAGE_DATA", "image_data_param"),
    "infogain_loss": ("INFOGAIN_LOSS", "infogain_loss_param"),
    "innerproduct": ("INNER_PRODUCT", "inner_product_param"),
    "lrn": ("LRN", "lrn_param"),
    "multinomial_logistic_loss": ("MULTINOMIAL_LOGISTIC_LOSS", ""),
    "pool": ("POOLING", "pooling_param"),
    "relu": ("RELU", "relu_param"),
    "sigmoid": ("SIGMOID", "sigmoid_param"),
    "softmax": ("SOFTMAX", "softmax_param"),
    "softmax_loss": ("SOFTMAX_LOSS", ""),
    "split": ("SPLIT", ""),
    "tanh": ("TANH", "tanh_param"),
    "window_data": ("WINDOW_DATA", "window_data_param"),
}
_RENAMED = {
    "biasterm": "bias_term",
    "kernelsize": "kernel_size",
    "batchsize": "batch_size",
    "shuffle_images": "shuffle",
    "det_fg_threshold": "fg_threshold",
    "det_bg_threshold": "bg_threshold",
    "det_fg_fraction": "fg_fraction",
    "det_context_pad": "context_pad",
    "det_crop_mode": "crop_mode",
}
_TRANSFORMS = {"scale": "scale", "meanfile": "mean_file", "cropsize": "crop_size", "mirror": "mirror"}
_OF_THE_LAYER = frozenset({"name", "blobs", "blobs_lr", "weight_decay", "hdf5_output_param"})


def v1_layers(layers: list[CaffeMessage], findings: Findings) -> list[CaffeMessage]:
    """The V1 layers that these V0 layers are; a padding layer becomes the padding of what it feeds."""
    made_by: dict[str, CaffeMessage] = {}  # by blob: the padding layer that makes it
    found = []
    for connection in layers:
        inner = connection.part("layer")
        if inner.one("type") == _PADDING:
            made_by.update(dict.fromkeys(connection.all("top"), connection))
            continue
        upgraded = _layer(connection, inner, findings)
        for number, bottom in enumerate(upgraded.all("bottom")):
            if (padding := made_by.get(bottom)) is not None:
                _pad(upgraded, number, padding, findings)
        for top in upgraded.all("top"):
            made_by.pop(top, None)
        found.append(upgraded)
    return found


def _pad(layer: CaffeMessage, number: int, padding: CaffeMessage, findings: Findings) -> None:
    settings = TYPES["conv" if layer.one("type") == "CONVOLUTION" else "pool"][1]
    if layer.one("type") not in ("CONVOLUTION", "POOLING") or len(padding.all("bottom")) != 1:
        findings.add("padding in front of a layer that is no conv or pool", layer.line, layer.one("name"))
        return
    if settings not in layer:
        layer.add(settings, CaffeMessage(kind("V1Layer").fields[settings].type, layer.line))
    layer.part(settings).values["pad"] = [padding.part("layer").one("pad")]
    layer.values["bottom"][number] = padding.all("bottom")[0]


def _layer(connection: CaffeMessage, inner: CaffeMessage, findings: Findings) -> CaffeMessage:
    found = connection.without("layer")
    name, old = inner.one("name"), inner.one("type")
    type_name, settings = TYPES.get(old, ("NONE", ""))
    if type_name == "NONE":
        findings.add(f"type {old!r} is no layer of 2013; accepted: {', '.join(TYPES)}", inner.line_of("type"), name)
    found.add("type", type_name)
    accepted = kind(kind("V1Layer").fields[settings].type).fields if settings else {}
    for field, values in inner.values.items():
        if field in _OF_THE_LAYER:
            found.add(field, *values, line=inner.line_of(field))
        elif field in _TRANSFORMS:
            _part(found, "transform_param").add(_TRANSFORMS[field], *values)
        elif (renamed := _RENAMED.get(field, field)) in accepted:
            _part(found, settings).add(renamed, *values, line=inner.line_of(field))
        elif field != "type":
            findings.ignore(f"field {field!r} means nothing to type {old!r}", inner.line_of(field), name)
    return found


def _part(layer: CaffeMessage, field: str) -> CaffeMessage:
    if field not in layer:
        layer.add(field, CaffeMessage(kind(layer.kind).fields[field].type, layer.line))
    return layer.part(field)
