"""Convolution over one, two or three axes behind the channels."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Literal

from volary.errors import SettingError
from volary.network.layers._base import Count, LayerKind, Shape, number
from volary.network.operations.windows import Sizes, after_windows, each, refuse_below, spatial
from volary.session.reading.choice import Choice

if TYPE_CHECKING:
    from torch import nn


@dataclass(frozen=True, kw_only=True)
class ConvLayer(LayerKind):
    """(channels, ...) to (`channels`, ...); the weight is (channels, channels before / groups, kernel...)."""

    channels: Count  # of the output
    kernel: Sizes  # size of a window; a number, or one for each axis
    stride: Sizes = 1  # steps from one window to the next
    padding: Sizes | Literal["same"] = 0  # zeros on each side; same: as many that the size stays
    dilation: Sizes = 1  # steps from one value of a window to the next
    groups: int = 1  # parts of the channels, each with its own share of the outputs
    bias: bool = True  # whether a bias is added
    weight_filler: Annotated[Any, Choice("volary.network.fillers")] = "default"  # first values of the weight
    bias_filler: Annotated[Any, Choice("volary.network.fillers")] = "default"  # first values of the bias

    def check(self) -> None:
        for name in ("kernel", "stride", "dilation", "groups"):
            refuse_below(name, getattr(self, name), 1)
        if isinstance(self.channels, int):
            refuse_below("channels", self.channels, 1)
        if self.padding != "same":
            refuse_below("padding", self.padding, 0)
        elif self.stride != 1:
            raise SettingError(f"padding is 'same' and stride is {self.stride}; accepted: a stride of 1")

    def shapes(self, given: tuple[Shape, ...]) -> tuple[Shape, ...]:
        sides, channels = spatial(given[0]), self.channels_of(given[0])
        kernel, stride, dilation = (
            each(name, getattr(self, name), len(sides)) for name in ("kernel", "stride", "dilation")
        )
        if self.padding == "same":
            return ((channels, *sides),)
        padding = each("padding", self.padding, len(sides))
        return ((channels, *after_windows(sides, kernel, stride, padding, dilation)),)

    def channels_of(self, given: Shape) -> int:
        """The channels of the output. Raises SettingError if the groups do not divide them, or those of the input."""
        channels = number(self.channels)
        if given[0] % self.groups or channels % self.groups:
            raise SettingError(
                f"has {given[0]} channels in and {channels} out; accepted: multiples of groups, {self.groups}"
            )
        return channels

    def build(self, given: tuple[Shape, ...]) -> nn.Module:
        made: nn.Module = self.modules()[len(given[0]) - 2](
            given[0][0],
            number(self.channels),
            self.kernel,
            stride=self.stride,
            padding=self.padding,
            dilation=self.dilation,
            groups=self.groups,
            bias=self.bias,
        )
        return made

    def modules(self) -> tuple[Any, ...]:
        """The classes for one, two and three axes."""
        from torch import nn

        return nn.Conv1d, nn.Conv2d, nn.Conv3d

    def fill(self, module: nn.Module) -> None:
        self.weight_filler.fill(module.weight)
        if self.bias:
            self.bias_filler.fill(module.bias)


LAYER = ConvLayer
