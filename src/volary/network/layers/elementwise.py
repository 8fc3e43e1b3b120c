"""Several edges of one shape, value by value; written by its operation, as `sum`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal

from volary.errors import SettingError
from volary.network.layers._base import LayerKind, Shape

if TYPE_CHECKING:
    from torch import nn


@dataclass(frozen=True, kw_only=True)
class ElementwiseLayer(LayerKind):
    """Shapes that are equal, and stay."""

    most: ClassVar[int | None] = None

    operation: Literal["sum", "product", "maximum"] = "sum"  # how they become one
    coefficients: tuple[float, ...] | None = None  # of a sum: a factor for each edge, as (1, -1) for a difference

    def check(self) -> None:
        if self.coefficients is not None and self.operation != "sum":
            raise SettingError(f"coefficients are of a sum, and operation is {self.operation!r}; accepted: null")

    def shapes(self, given: tuple[Shape, ...]) -> tuple[Shape, ...]:
        if any(shape != given[0] for shape in given):
            raise SettingError("takes equal shapes")
        if self.coefficients is not None and len(self.coefficients) != len(given):
            raise SettingError(
                f"has {len(self.coefficients)} coefficients; accepted: one for each of {len(given)} edges"
            )
        return (given[0],)

    def build(self, given: tuple[Shape, ...]) -> nn.Module:
        from volary.network.operations.joining import Maximum, Product, Sum

        if self.operation == "sum":
            return Sum(self.coefficients)
        return Product() if self.operation == "product" else Maximum()


LAYER = ElementwiseLayer
