"""Channels of several groups in turns, so that the next grouped convolution sees all of them (ShuffleNet, 2017)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from volary.errors import SettingError
from volary.network.layers._base import LayerKind, Shape

if TYPE_CHECKING:
    from torch import nn


@dataclass(frozen=True, kw_only=True)
class ShuffleLayer(LayerKind):
    """(channels, ...) to the same shape: the first channel of each group, then the second of each."""

    groups: int  # that the channels are divided into

    def check(self) -> None:
        if self.groups < 1:
            raise SettingError(f"groups is {self.groups}; accepted: a whole number from 1")

    def shapes(self, given: tuple[Shape, ...]) -> tuple[Shape, ...]:
        if len(given[0]) < 2:
            raise SettingError(f"takes (channels, ...) with axes behind the channels; it was given {given[0]}")
        if given[0][0] % self.groups:
            raise SettingError(f"groups is {self.groups}; accepted: what divides the {given[0][0]} channels")
        return (given[0],)

    def build(self, given: tuple[Shape, ...]) -> nn.Module:
        from torch import nn

        self.shapes(given)
        return nn.ChannelShuffle(self.groups)


LAYER = ShuffleLayer
