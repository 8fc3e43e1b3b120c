"""A network of any age in today's form: `layer` messages alone, inputs as a layer, what transforms in one place."""

from __future__ import annotations

from volary.network.caffe.findings import Findings
from volary.network.caffe.message import CaffeMessage
from volary.network.caffe.upgrade.v0 import v1_layers
from volary.network.caffe.upgrade.v1 import current_layer

_TRANSFORMS = ("scale", "mean_file", "crop_size", "mirror")
_WITH_TRANSFORMS = ("data_param", "image_data_param", "window_data_param")
STATISTICS = 3  # blobs of a BatchNorm layer: sums of means and of variances, and what both are divided by


def current(net: CaffeMessage, findings: Findings) -> CaffeMessage:
    """The network with the fields of today; what cannot be is noted in `findings`."""
    if net.all("layer") and net.all("layers"):
        sentence = "has layers of both forms, `layer` and `layers`; accepted: one of them"
        findings.add(sentence, max(net.all("layer")[0].line, net.all("layers")[0].line))
        return net
    layers = net.all("layers")
    if layers:
        if any("layer" in layer for layer in layers):
            layers = v1_layers(layers, findings)
        layers = [current_layer(layer, findings) for layer in layers]
    else:
        layers = [layer.without() for layer in net.all("layer")]
    for layer in layers:
        _move_transforms(layer)
        _freeze_statistics(layer)
    found = net.without("layers", "layer", "input", "input_dim", "input_shape")
    return found.add("layer", *_inputs(net, findings), *layers)


def _move_transforms(layer: CaffeMessage) -> None:
    for name in _WITH_TRANSFORMS:
        old = [field for field in _TRANSFORMS if field in layer.part(name)] if name in layer else []
        if old and "transform_param" not in layer:
            layer.add("transform_param", CaffeMessage("Transformation", layer.line))
        for field in old:
            layer.part("transform_param").add(field, layer.part(name).one(field), line=layer.part(name).line_of(field))
        if old:
            layer.values[name] = [layer.part(name).without(*old)]


def _freeze_statistics(layer: CaffeMessage) -> None:
    """The statistics of batch norm are no parameters; old files said so with multipliers of 0, or forgot it."""
    if layer.one("type") == "BatchNorm" and len(layer.all("param")) == STATISTICS:
        layer.values["param"] = [
            spec.without("lr_mult", "decay_mult").add("lr_mult", 0.0).add("decay_mult", 0.0)
            for spec in layer.all("param")
        ]


def _inputs(net: CaffeMessage, findings: Findings) -> list[CaffeMessage]:
    """The Input layer that fields of the network stand for; none of a caffemodel that names its inputs alone."""
    names, shapes, dims = net.all("input"), net.all("input_shape"), net.all("input_dim")
    if not names or not (shapes or dims):
        return []
    line = net.line_of("input")
    if not shapes:
        if len(dims) != 4 * len(names):
            findings.add(f"has {len(dims)} input_dim for {len(names)} inputs; accepted: four each", line)
            return []
        shapes = [CaffeMessage("BlobShape", line).add("dim", *dims[at : at + 4]) for at in range(0, len(dims), 4)]
    if len(shapes) != len(names):
        findings.add(f"has {len(shapes)} input_shape for {len(names)} inputs; accepted: one each", line)
        return []
    layer = CaffeMessage("Layer", line).add("name", "input").add("type", "Input").add("top", *names)
    return [layer.add("input_param", CaffeMessage("Input", line).add("shape", *shapes))]
