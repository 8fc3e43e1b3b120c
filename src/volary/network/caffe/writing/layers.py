"""Modules of torch, and of graphs, as layers of Caffe's, with their blobs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from math import prod
from typing import TYPE_CHECKING, Any

from torch import Tensor, nn, ones

from volary.errors import SettingError
from volary.network.caffe.message import CaffeMessage
from volary.network.caffe.schema.table import kind
from volary.network.caffe.weights.blob import blob_from
from volary.network.operations import values
from volary.network.operations.frozen import FrozenNorm
from volary.network.operations.joining import Concat, Cut, Maximum, Product, Sum
from volary.network.operations.scaling import ScaleByParameters
from volary.network.operations.shaping import Crop, Permute, Reshape, Tile

if TYPE_CHECKING:
    from volary.network.layers._base import Shape

Layers = list[CaffeMessage]


@dataclass(frozen=True)
class NetworkPart:
    """A layer of a network: its module, and the blobs that it reads and makes. given: their shapes, of one sample."""

    name: str
    module: Any
    reads: tuple[str, ...]
    makes: tuple[str, ...]
    given: tuple[Shape, ...]

    def layer(self, sort: str, field: str = "", blobs: Sequence[Tensor | None] = (), **settings: Any) -> CaffeMessage:
        """A layer of Caffe's with these settings in a field, and these tensors, of any shapes, as its blobs."""
        found = CaffeMessage("Layer").add("name", self.name).add("type", sort)
        found.add("bottom", *self.reads).add("top", *self.makes)
        if settings:
            own = CaffeMessage(kind("Layer").fields[field].type)
            for name, value in settings.items():
                own.add(name, *(value if isinstance(value, list) else [value]))
            found.add(field, own)
        arrays = [one.detach().cpu().float().numpy() for one in blobs if one is not None]
        return found.add("blobs", *map(blob_from, arrays)) if arrays else found


def caffe_layers(part: NetworkPart) -> Layers:
    """The layers that compute what a part does. Raises SettingError where Caffe has none."""
    writer = next((one for sort, one in WRITERS.items() if type(part.module) is sort), None)
    if writer is None:
        raise SettingError(f"Caffe has no layer for {type(part.module).__name__}")
    return writer(part)


def _windows(module: Any) -> dict[str, Any]:
    if module.padding_mode != "zeros" or isinstance(module.padding, str):
        raise SettingError(f"padding is {module.padding!r} with {module.padding_mode}; accepted: numbers, of zeros")
    return {
        "num_output": module.out_channels,
        "bias_term": module.bias is not None,
        "pad": list(module.padding),
        "kernel_size": list(module.kernel_size),
        "group": module.groups,
        "stride": list(module.stride),
        "dilation": list(module.dilation),
    }


def _convolution(part: NetworkPart) -> Layers:
    own = part.module
    return [part.layer("Convolution", "convolution_param", [own.weight, own.bias], **_windows(own))]


def _deconvolution(part: NetworkPart) -> Layers:
    own = part.module
    if any(own.output_padding):
        raise SettingError(f"output_padding is {own.output_padding}; accepted: 0")
    return [part.layer("Deconvolution", "convolution_param", [own.weight, own.bias], **_windows(own))]


def _linear(part: NetworkPart) -> Layers:
    own, shape = part.module, part.given[0]
    # a graph flattens what the layer reads, from the axis on that leaves as many values as the layer takes
    axis = next(one for one in range(len(shape), 0, -1) if prod(shape[one - 1 :]) == own.in_features)
    settings = {"num_output": own.out_features, "bias_term": own.bias is not None, "axis": axis}
    return [part.layer("InnerProduct", "inner_product_param", [own.weight, own.bias], **settings)]


def _pooling(part: NetworkPart) -> Layers:
    own, largest = part.module, isinstance(part.module, nn.MaxPool2d)
    kernel, stride, pad = (_pair(one) for one in (own.kernel_size, own.stride, own.padding))
    if largest and (_pair(own.dilation) != (1, 1) or own.return_indices):
        raise SettingError("has a dilation, or returns indices; accepted: neither")
    if not largest and (own.divisor_override or (any(pad) and not own.count_include_pad)):
        raise SettingError("averages divide by something else; accepted: the window inside the padded image")
    settings: dict[str, Any] = {"pool": "MAX" if largest else "AVE"}
    for name, sizes in (("kernel", kernel), ("stride", stride), ("pad", pad)):
        settings |= {f"{name}_h": sizes[0], f"{name}_w": sizes[1]}
    rest = zip(part.given[0][1:], kernel, stride, pad, strict=True)
    if not own.ceil_mode and any((side + 2 * p - k) % s for side, k, s, p in rest):
        settings["round_mode"] = "FLOOR"
    return [part.layer("Pooling", "pooling_param", **settings)]


def _global(part: NetworkPart) -> Layers:
    if _pair(part.module.output_size) != (1, 1):
        raise SettingError(f"gives {part.module.output_size} windows of differing sizes; accepted: 1")
    pool = "AVE" if isinstance(part.module, nn.AdaptiveAvgPool2d) else "MAX"
    return [part.layer("Pooling", "pooling_param", pool=pool, global_pooling=True)]


def _norm(part: NetworkPart) -> Layers:
    """Statistics, divided by a third blob of 1, and the factors in a Scale layer of their own."""
    own = part.module
    statistics = [own.running_mean, own.running_var, ones(1)]
    if own.weight is None:
        return [part.layer("BatchNorm", "batch_norm_param", statistics, eps=own.eps)]
    between = (f"{part.name}_normalized",)
    first = NetworkPart(part.name, own, part.reads, between, part.given)
    second = NetworkPart(f"{part.name}_scale", own, between, part.makes, part.given)
    return [
        first.layer("BatchNorm", "batch_norm_param", statistics, eps=own.eps),
        second.layer("Scale", "scale_param", [own.weight, own.bias], bias_term=own.bias is not None),
    ]


def _response(part: NetworkPart) -> Layers:
    own = part.module
    within = isinstance(own, values.ResponseNormWithin)
    if within and own.k != 1:
        raise SettingError(f"k is {own.k} within channels; accepted: 1")
    settings = {"local_size": own.size, "alpha": own.alpha, "beta": own.beta, "k": own.k}
    region = "WITHIN_CHANNEL" if within else "ACROSS_CHANNELS"
    return [part.layer("LRN", "lrn_param", **settings, norm_region=region)]


def _scale(part: NetworkPart) -> Layers:
    own = part.module
    axis = len(part.given[0]) + 1 - own.after - own.weight.dim()
    settings = {"axis": axis, "num_axes": own.weight.dim(), "bias_term": own.bias is not None}
    return [part.layer("Scale", "scale_param", [own.weight, own.bias], **settings)]


def _prelu(part: NetworkPart) -> Layers:
    shared = part.module.num_parameters == 1 and part.given[0][0] != 1
    return [part.layer("PReLU", "prelu_param", [part.module.weight], channel_shared=shared)]


def _softplus(part: NetworkPart) -> Layers:
    if part.module.beta != 1:
        raise SettingError(f"beta is {part.module.beta}; accepted: 1")
    return [part.layer("BNLL")]


def _sum(part: NetworkPart) -> Layers:
    coefficients = part.module.coefficients
    settings = {"coeff": list(coefficients)} if coefficients is not None else {}
    return [part.layer("Eltwise", "eltwise_param", operation="SUM", **settings)]


def _plain(
    sort: str, field: str = "", settings: Callable[[Any], dict[str, Any]] = lambda _: {}
) -> Callable[[NetworkPart], Layers]:
    """A layer whose settings follow from its module alone."""
    return lambda part: [part.layer(sort, field, **settings(part.module))]


def _of_line(own: Any) -> dict[str, Any]:
    return {"base": -1.0 if own.base is None else own.base, "scale": own.scale, "shift": own.shift}


def _pair(size: Any) -> tuple[int, int]:
    return (size, size) if isinstance(size, int) else tuple(size)


WRITERS: dict[type[nn.Module], Callable[[NetworkPart], Layers]] = {
    nn.Conv2d: _convolution,
    nn.ConvTranspose2d: _deconvolution,
    nn.Linear: _linear,
    nn.MaxPool2d: _pooling,
    nn.AvgPool2d: _pooling,
    nn.AdaptiveMaxPool2d: _global,
    nn.AdaptiveAvgPool2d: _global,
    nn.BatchNorm1d: _norm,
    nn.BatchNorm2d: _norm,
    FrozenNorm: _norm,
    nn.LocalResponseNorm: _response,
    values.ResponseNormWithin: _response,
    ScaleByParameters: _scale,
    nn.PReLU: _prelu,
    nn.Softplus: _softplus,
    nn.ReLU: _plain("ReLU"),
    nn.LeakyReLU: _plain("ReLU", "relu_param", lambda own: {"negative_slope": own.negative_slope}),
    nn.ELU: _plain("ELU", "elu_param", lambda own: {"alpha": own.alpha}),
    nn.Sigmoid: _plain("Sigmoid"),
    nn.Tanh: _plain("TanH"),
    nn.SiLU: _plain("Swish"),
    nn.Dropout: _plain("Dropout", "dropout_param", lambda own: {"dropout_ratio": own.p}),
    nn.Softmax: _plain("Softmax", "softmax_param", lambda own: {"axis": own.dim}),
    nn.Flatten: _plain("Flatten", "flatten_param", lambda own: {"axis": own.start_dim, "end_axis": own.end_dim}),
    values.Absolute: _plain("AbsVal"),
    values.Power: _plain(
        "Power", "power_param", lambda own: {"power": own.power, "scale": own.scale, "shift": own.shift}
    ),
    values.ExponentialOfLine: _plain("Exp", "exp_param", _of_line),
    values.LogarithmOfLine: _plain("Log", "log_param", _of_line),
    values.Above: _plain("Threshold", "threshold_param", lambda own: {"threshold": own.bound}),
    nn.ChannelShuffle: _plain("ShuffleChannel", "shuffle_channel_param", lambda own: {"group": own.groups}),
    values.Clamp: _plain("Clip", "clip_param", lambda own: {"min": own.low, "max": own.high}),
    Tile: _plain("Tile", "tile_param", lambda own: {"tiles": own.copies, "axis": own.axis}),
    Sum: _sum,
    Product: _plain("Eltwise", "eltwise_param", lambda _: {"operation": "PROD"}),
    Maximum: _plain("Eltwise", "eltwise_param", lambda _: {"operation": "MAX"}),
    Concat: _plain("Concat", "concat_param", lambda own: {"axis": own.axis}),
    Cut: _plain(
        "Slice", "slice_param", lambda own: {"slice_point": list(accumulate(own.sizes))[:-1], "axis": own.axis}
    ),
    Permute: _plain("Permute", "permute_param", lambda own: {"order": list(own.order)}),
    Reshape: _plain(
        "Reshape", "reshape_param", lambda own: {"shape": CaffeMessage("BlobShape").add("dim", 0, *own.shape)}
    ),
    Crop: _plain("Crop", "crop_param", lambda own: {"axis": own.axis, "offset": list(own.offsets)}),
}
