"""Pooling: the largest value of each window, or its average."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, cast

from volary.errors import SettingError
from volary.network.layers._base import LayerKind, Shape
from volary.network.operations.windows import Sizes, after_windows, each, refuse_below, spatial

if TYPE_CHECKING:
    from torch import nn


@dataclass(frozen=True, kw_only=True)
class PoolLayer(LayerKind):
    """(channels, ...) to fewer values for each channel.

    An average divides by the part of its window that is inside the padded input (as Caffe does, and torch).
    """

    kind: Literal["max", "average"] = "max"  # what is taken of each window
    size: Sizes | Literal["global"]  # of a window; a number, or one for each axis; global: one window with everything
    stride: Sizes | None = None  # steps from one window to the next; null: the size
    padding: Sizes = 0  # on each side: never the largest, and zeros in an average
    round: Literal["floor", "ceil"] = "floor"  # ceil: the last window may hang over the edge, as Caffe's do

    def check(self) -> None:
        if self.size == "global":
            if self.stride is not None or self.padding != 0:
                raise SettingError("size is 'global', which takes neither stride nor padding; accepted: none of them")
            return
        refuse_below("size", self.size, 1)
        refuse_below("padding", self.padding, 0)
        if self.stride is not None:
            refuse_below("stride", self.stride, 1)

    def shapes(self, given: tuple[Shape, ...]) -> tuple[Shape, ...]:
        sides, channels = spatial(given[0]), given[0][0]
        if self.size == "global":
            return ((channels, *(1 for _ in sides)),)
        size = each("size", self.size, len(sides))
        stride = size if self.stride is None else each("stride", self.stride, len(sides))
        padding = each("padding", self.padding, len(sides))
        if any(2 * pad > window for pad, window in zip(padding, size, strict=True)):
            raise SettingError(f"padding is {self.padding}; accepted: up to half of size, {self.size}")
        after = after_windows(sides, size, stride, padding, (1,) * len(sides), ceil=self.round == "ceil")
        return ((channels, *after),)

    def build(self, given: tuple[Shape, ...]) -> nn.Module:
        from torch import nn

        axes, largest = len(given[0]) - 2, self.kind == "max"
        if self.size == "global":
            whole: tuple[Any, ...] = (nn.AdaptiveAvgPool1d, nn.AdaptiveAvgPool2d, nn.AdaptiveAvgPool3d)
            if largest:
                whole = (nn.AdaptiveMaxPool1d, nn.AdaptiveMaxPool2d, nn.AdaptiveMaxPool3d)
            return cast("nn.Module", whole[axes](1))
        averages: tuple[Any, ...] = (nn.AvgPool1d, nn.AvgPool2d, nn.AvgPool3d)
        kinds = (nn.MaxPool1d, nn.MaxPool2d, nn.MaxPool3d) if largest else averages
        ceil = self.round == "ceil"
        return cast("nn.Module", kinds[axes](self.size, stride=self.stride, padding=self.padding, ceil_mode=ceil))


LAYER = PoolLayer
