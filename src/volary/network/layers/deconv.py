"""Deconvolution: the convolution's transpose, which enlarges (Zeiler et al. 2010; Long et al. 2015)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from volary.errors import SettingError
from volary.network.layers._base import Shape
from volary.network.layers.conv import ConvLayer
from volary.network.operations.windows import Sizes, each, spatial


@dataclass(frozen=True, kw_only=True)
class DeconvLayer(ConvLayer):
    """(channels, ...) to (`channels`, ...); the weight is (channels before, channels / groups, kernel...)."""

    stride: Sizes = 1  # steps from one window to the next, in the output
    padding: Sizes = 0  # values that are cut off each side of the output

    def shapes(self, given: tuple[Shape, ...]) -> tuple[Shape, ...]:
        sides, channels = spatial(given[0]), self.channels_of(given[0])
        names = ("kernel", "stride", "padding", "dilation")
        settings = zip(*(each(name, getattr(self, name), len(sides)) for name in names), strict=True)
        found = []
        for side, (kernel, stride, padding, dilation) in zip(sides, settings, strict=True):
            found.append((side - 1) * stride - 2 * padding + dilation * (kernel - 1) + 1)
        if min(found) < 1:
            raise SettingError(f"makes sides of {tuple(found)}: padding, {self.padding}, cuts off all")
        return ((channels, *found),)

    def modules(self) -> tuple[Any, ...]:
        from torch import nn

        return nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d


LAYER = DeconvLayer
