"""The way around a residual block (He et al. 2016): nothing, or a 1 x 1 convolution with batch norm."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

from volary.network.layers._base import LayerKind, Shape
from volary.network.layers.batch_norm import BatchNormLayer
from volary.network.layers.conv import ConvLayer
from volary.session.reading.choice import Choice

if TYPE_CHECKING:
    from torch import nn


@dataclass(frozen=True, kw_only=True)
class ShortcutLayer(LayerKind):
    """(channels, ...) to (`channels`, ...); the identity where neither channels nor sizes change."""

    channels: int  # of the block's output
    stride: int = 1  # of the block
    weight_filler: Annotated[Any, Choice("volary.network.fillers")] = "default"  # first values of the convolution

    def shapes(self, given: tuple[Shape, ...]) -> tuple[Shape, ...]:
        if self._same(given[0]):
            return (given[0],)
        return self._conv().shapes(given)

    def build(self, given: tuple[Shape, ...]) -> nn.Module:
        from torch import nn

        if self._same(given[0]):
            return nn.Identity()
        return nn.Sequential(self._conv().build(given), BatchNormLayer().build(self._conv().shapes(given)))

    def fill(self, module: nn.Module) -> None:
        if len(list(module.children())):
            self.weight_filler.fill(module.get_submodule("0").weight)

    def _same(self, shape: Shape) -> bool:
        return self.stride == 1 and shape[0] == self.channels

    def _conv(self) -> ConvLayer:
        return ConvLayer(channels=self.channels, kernel=1, stride=self.stride, bias=False)


LAYER = ShortcutLayer
