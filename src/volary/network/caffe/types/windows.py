"""Layers whose windows slide over an image: convolution, deconvolution, pooling, LRN."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal, TypeVar

from volary.errors import SettingError
from volary.network.caffe.message import CaffeMessage
from volary.network.caffe.types.fillers import filler
from volary.network.caffe.types.translation import ENGINE, CaffeLayer, Translated, numbers
from volary.network.layers.conv import ConvLayer
from volary.network.layers.deconv import DeconvLayer
from volary.network.layers.lrn import LrnLayer
from volary.network.layers.pool import PoolLayer
from volary.network.layers.pyramid import PyramidLayer
from volary.network.operations.windows import each

Sides = int | tuple[int, ...]
Convolving = TypeVar("Convolving", ConvLayer, DeconvLayer)


def convolution(layer: CaffeLayer) -> Translated:
    """As torch's: the weight is (out, in / group, height, width). Raises SettingError for a missing size."""
    return Translated(_convolving(ConvLayer, layer))


def _convolving(kind: type[Convolving], layer: CaffeLayer) -> Convolving:
    settings = _windowed(layer)
    return kind(
        channels=settings.one("num_output"),
        kernel=_sides(settings, "kernel_size", "kernel", None),
        stride=_sides(settings, "stride", "stride", 1),
        padding=_sides(settings, "pad", "pad", 0),
        dilation=_sides(settings, "dilation", "", 1),
        groups=settings.one("group"),
        bias=settings.one("bias_term"),
        weight_filler=filler(settings, "weight_filler"),
        bias_filler=filler(settings, "bias_filler"),
    )


def depthwise(layer: CaffeLayer) -> Translated:
    """Each channel by itself; a layer of forks (MobileNet), whose group says as much as the channels do."""
    found = convolution(layer)
    assert isinstance(found.kind, ConvLayer)
    return replace(found, kind=replace(found.kind, groups=layer.given[0][0]))


def deconvolution(layer: CaffeLayer) -> Translated:
    """As torch's transposed convolution: the weight is (in, out / group, height, width).

    Raises SettingError for a missing size.
    """
    return Translated(_convolving(DeconvLayer, layer))


def pooling(layer: CaffeLayer) -> Translated:
    """The last window may hang over the edge; an average divides by the part of a window inside the padded image.

    Raises SettingError for what Caffe gives no value.
    """
    settings = layer.settings("pooling_param")
    layer.ignore(settings, "engine", why=ENGINE)
    kind = _pooled(settings)
    if len(layer.message.all("top")) > 1:
        raise SettingError("has a second top, the mask of the largest values; accepted: one top")
    if settings.one("global_pooling"):
        return Translated(PoolLayer(kind=kind, size="global"))
    floor = settings.one("round_mode") == "FLOOR" or not settings.one("ceil_mode")
    found = PoolLayer(
        kind=kind,
        size=_sides(settings, "kernel_size", "kernel", None),
        stride=_sides(settings, "stride", "stride", 1),
        padding=_sides(settings, "pad", "pad", 0),
        round="floor" if floor else "ceil",
    )
    _refuse_windows_outside(found, layer.given[0][1:])
    return Translated(found)


def pyramid(layer: CaffeLayer) -> Translated:
    """Pooling into finer and finer grids, side by side. Raises SettingError for what Caffe gives no value."""
    settings = layer.settings("spp_param")
    layer.ignore(settings, "engine", why=ENGINE)
    return Translated(PyramidLayer(levels=settings.one("pyramid_height"), kind=_pooled(settings)))


def _pooled(settings: CaffeMessage) -> Literal["max", "average"]:
    if settings.one("pool") == "STOCHASTIC":
        raise SettingError("pool is STOCHASTIC; accepted: MAX, AVE")
    return "max" if settings.one("pool") == "MAX" else "average"


def local_response(layer: CaffeLayer) -> Translated:
    """As torch has it across channels: alpha is divided by the size; within channels Caffe's k is 1."""
    settings = layer.settings("lrn_param")
    layer.ignore(settings, "engine", why=ENGINE)
    within = settings.one("norm_region") == "WITHIN_CHANNEL"
    if within:
        layer.ignore(settings, "k", why="within channels Caffe adds 1, whatever k is")
    return Translated(
        LrnLayer(
            size=settings.one("local_size"),
            alpha=settings.one("alpha"),
            beta=settings.one("beta"),
            k=1.0 if within else settings.one("k"),
            region="within" if within else "across",
        )
    )


def _windowed(layer: CaffeLayer) -> CaffeMessage:
    settings = layer.settings("convolution_param")
    layer.ignore(settings, "engine", "force_nd_im2col", why=ENGINE)
    if settings.one("axis") != 1:
        raise SettingError(f"axis is {settings.one('axis')}; accepted: 1, the channels")
    if not settings.one("num_output"):
        raise SettingError("num_output is missing; accepted: a whole number from 1")
    return settings


def _sides(settings: CaffeMessage, name: str, of_two: str, default: int | None) -> Sides:
    """A number for each axis: the repeated field, or one field each for height and width.

    Raises SettingError if both are given, or neither is where there is no default.
    """
    pair = [f"{of_two}_{axis}" for axis in "hw"] if of_two else []
    there = [one for one in pair if one in settings]
    if name in settings and there:
        raise SettingError(f"{name} and {there[0]} are both given; accepted: one of them")
    if there:
        if len(there) == 1 and default is None:
            raise SettingError(f"{there[0]} is given alone; accepted: {pair[0]} and {pair[1]}")
        return tuple(int(settings.one(one)) if one in settings else default or 0 for one in pair)
    if name in settings:
        return numbers(settings.all(name))
    if default is None:
        raise SettingError(f"{name} is missing; accepted: a whole number from 1")
    return default


def _refuse_windows_outside(kind: PoolLayer, sides: tuple[int, ...]) -> None:
    """Raise SettingError where Caffe has a last window without a value: its maximum would be the lowest number."""
    if kind.round == "floor" or kind.size == "global":
        return
    settings = (kind.size, kind.stride if kind.stride is not None else kind.size, kind.padding)
    windows = zip(sides, *(each("size", one, len(sides)) for one in settings), strict=True)
    for side, size, stride, padding in windows:
        last = -(-(side + 2 * padding - size) // stride) * stride
        if not padding and last >= side:
            raise SettingError(
                f"has a last window that begins at {last}, outside of {side} values, where Caffe has no value; "
                "accepted: a stride up to kernel_size, or round_mode: FLOOR"
            )
