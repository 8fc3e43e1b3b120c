"""A power whose exponent is a line: base ** (shift + scale * x), value by value."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from volary.errors import SettingError
from volary.network.layers._base import LayerKind, Shape

if TYPE_CHECKING:
    from torch import nn


@dataclass(frozen=True, kw_only=True)
class ExpLayer(LayerKind):
    """The shape of what it is given stays."""

    base: float | None = None  # above 0; null: e
    scale: float = 1.0  # factor of each value
    shift: float = 0.0  # what is added to the exponent

    def check(self) -> None:
        if self.base is not None and self.base <= 0:
            raise SettingError(f"base is {self.base:g}; accepted: above 0, or null, which is e")

    def shapes(self, given: tuple[Shape, ...]) -> tuple[Shape, ...]:
        return (given[0],)

    def build(self, given: tuple[Shape, ...]) -> nn.Module:
        from volary.network.operations.values import ExponentialOfLine

        return ExponentialOfLine(self.base, self.scale, self.shift)


LAYER = ExpLayer
