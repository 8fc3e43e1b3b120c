"""Layers that arrange values: concatenation, slices, shapes, axes, crops."""

from __future__ import annotations

from math import prod
from typing import Literal

from volary.errors import SettingError
from volary.network.caffe.types.translation import CaffeLayer, Translated, numbers
from volary.network.layers._base import Shape
from volary.network.layers.arg_max import ArgMaxLayer
from volary.network.layers.concat import ConcatLayer
from volary.network.layers.crop import CropLayer
from volary.network.layers.flatten import FlattenLayer
from volary.network.layers.permute import PermuteLayer
from volary.network.layers.reduce import ReduceLayer
from volary.network.layers.reshape import ReshapeLayer
from volary.network.layers.shuffle import ShuffleLayer
from volary.network.layers.slice import SliceLayer
from volary.network.layers.tile import TileLayer

_REDUCTIONS: dict[str, Literal["mean", "sum", "sum_of_magnitudes", "sum_of_squares"]] = {
    "SUM": "sum",
    "ASUM": "sum_of_magnitudes",
    "SUMSQ": "sum_of_squares",
    "MEAN": "mean",
}


def concat(layer: CaffeLayer) -> Translated:
    """Along the channels, or the axis that it names, in old files as concat_dim."""
    settings = layer.settings("concat_param")
    return Translated(ConcatLayer(axis=settings.one("concat_dim" if "concat_dim" in settings else "axis")))


def slices(layer: CaffeLayer) -> Translated:
    """At the points that it names, or into equal parts, one for each top.

    Raises SettingError for another number of points.
    """
    settings = layer.settings("slice_param")
    axis = settings.one("slice_dim" if "slice_dim" in settings else "axis")
    points, tops = tuple(settings.all("slice_point")), len(layer.message.all("top"))
    if points and len(points) != tops - 1:
        raise SettingError(f"has {len(points)} slice_point for {tops} tops; accepted: one fewer than tops")
    return Translated(SliceLayer(at=points, axis=axis) if points else SliceLayer(parts=tops, axis=axis))


def flatten(layer: CaffeLayer) -> Translated:
    """Several axes become one."""
    settings = layer.settings("flatten_param")
    return Translated(FlattenLayer(axis=settings.one("axis"), end=settings.one("end_axis")))


def permute(layer: CaffeLayer) -> Translated:
    """Axes in another order; those that it leaves out come behind, in theirs (a layer of SSD).

    Raises SettingError if the samples would move.
    """
    order, axes = list(layer.settings("permute_param").all("order")), len(layer.given[0]) + 1
    order += [axis for axis in range(axes) if axis not in order]
    if order[:1] != [0] or sorted(order) != list(range(axes)):
        raise SettingError(f"order is {order}; accepted: 0 first, then each axis of the blob once")
    return Translated(PermuteLayer(order=tuple(order[1:])))


def shuffle(layer: CaffeLayer) -> Translated:
    """Channels of several groups in turns (a layer of ShuffleNet's fork)."""
    return Translated(ShuffleLayer(groups=layer.settings("shuffle_channel_param").one("group")))


def arg_max(layer: CaffeLayer) -> Translated:
    """The places of the largest values, and by setting the values. Raises SettingError for an axis of the batch."""
    settings = layer.settings("argmax_param")
    axis = settings.one("axis") if "axis" in settings else None
    return Translated(ArgMaxLayer(top=settings.one("top_k"), axis=axis, values=settings.one("out_max_val")))


def crop(layer: CaffeLayer) -> Translated:
    """From an axis on to the size of the second blob."""
    settings = layer.settings("crop_param")
    offset = numbers(settings.all("offset")) if "offset" in settings else 0
    return Translated(CropLayer(axis=settings.one("axis"), offset=offset))


def tile(layer: CaffeLayer) -> Translated:
    """Copies along an axis; those of whole samples are refused."""
    settings = layer.settings("tile_param")
    return Translated(TileLayer(copies=settings.one("tiles"), axis=settings.one("axis")))


def reduction(layer: CaffeLayer) -> Translated:
    """All axes from `axis` on become one value, times a factor; the samples stay apart.

    Raises SettingError if they would not.
    """
    settings = layer.settings("reduction_param")
    axis = settings.one("axis")
    if axis in (0, -len(layer.given[0]) - 1):
        raise SettingError(f"axis is {axis}, the batch; accepted: 1 and more")
    operation = _REDUCTIONS[settings.one("operation")]
    return Translated(ReduceLayer(operation=operation, axis=axis, factor=settings.one("coeff")))


def reshape(layer: CaffeLayer) -> Translated:
    """Other sizes of the axes from `axis` on: 0 copies one, -1 is what is left. The samples stay apart.

    Raises SettingError otherwise.
    """
    settings, given = layer.settings("reshape_param"), layer.given[0]
    dims, axis, axes = list(settings.part("shape").all("dim")), settings.one("axis"), settings.one("num_axes")
    axis = axis if axis >= 0 else len(given) + 2 + axis
    last = len(given) + 1 if axes == -1 else axis + axes
    whole: list[int | None] = [None, *given]  # the batch first
    if not 0 <= axis <= last <= len(whole):
        raise SettingError(f"axis is {axis} and num_axes {axes}; accepted: axes of the blob, which has {len(whole)}")
    copied = [whole[axis + place] if dim == 0 and axis + place < last else dim for place, dim in enumerate(dims)]
    found = [*whole[:axis], *copied, *whole[last:]]
    return Translated(ReshapeLayer(shape=_of_a_sample(found, given, layer.batch)))


def _of_a_sample(sizes: list[int | None], given: Shape, batch: int | None) -> Shape:
    """The sizes behind the batch, if the first is the batch, in whatever way it is written."""
    rest = [size for size in sizes[1:] if size is not None]
    known = prod(size for size in rest if size != -1)
    by_batch = sizes[:1] in ([None], [batch]) if batch is not None else sizes[:1] == [None]
    by_rest = sizes[:1] == [-1] and -1 not in rest and known == prod(given)
    if not (by_batch or by_rest) or len(rest) != len(sizes) - 1:
        shown = [0 if size is None else size for size in sizes]
        raise SettingError(f"shape is {shown} for a sample of {list(given)}; accepted: 0 first, which keeps the batch")
    if -1 in rest and known and prod(given) % known == 0:
        rest = [prod(given) // known if size == -1 else size for size in rest]
    return tuple(rest)
