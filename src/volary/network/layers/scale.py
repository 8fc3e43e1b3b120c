"""A factor, and perhaps a bias, for each channel."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

from volary.errors import SettingError
from volary.network.layers._base import LayerKind, Shape, axis_of
from volary.session.reading.choice import Choice

if TYPE_CHECKING:
    from torch import nn


@dataclass(frozen=True, kw_only=True)
class ScaleLayer(LayerKind):
    """The first edge, times parameters, or times a second edge; its shape stays."""

    most: ClassVar[int | None] = 2

    axis: int = 1  # the first that the factors have; 0, with a second edge: that has the batch, too
    axes: int = 1  # how many axes the factors have; -1: all to the last
    bias: bool = False  # whether a bias is added
    weight_filler: Annotated[Any, Choice("volary.network.fillers")] = "default"  # first factors; default: 1
    bias_filler: Annotated[Any, Choice("volary.network.fillers")] = "default"  # first values of the bias; default: 0

    def shapes(self, given: tuple[Shape, ...]) -> tuple[Shape, ...]:
        if len(given) == 2:
            first = self._place(given[0])
            if given[0][first : first + len(given[1])] != given[1]:
                raise SettingError(f"multiplies from axis {self.axis} on; accepted: a second edge with the sizes there")
        self._factors(given)
        return (given[0],)

    def build(self, given: tuple[Shape, ...]) -> nn.Module:
        from volary.network.operations.scaling import ScaleByEdge, ScaleByParameters

        first = self._place(given[0])
        after = len(given[0]) - first - len(self._factors(given))
        if len(given) == 2:
            return ScaleByEdge(self._factors(given) if self.bias else None, after)
        return ScaleByParameters(self._factors(given), after, bias=self.bias)

    def fill(self, module: nn.Module) -> None:
        own = dict(module.named_parameters())
        if "weight" in own:
            self.weight_filler.fill(own["weight"])
        if "bias" in own:
            self.bias_filler.fill(own["bias"])

    def _place(self, shape: Shape) -> int:
        return 0 if self.axis == 0 else axis_of(self.axis, shape)

    def _factors(self, given: tuple[Shape, ...]) -> Shape:
        first = self._place(given[0])
        if len(given) == 2:
            return given[1]
        if self.axis == 0:
            raise SettingError("axis is 0, the batch; accepted with one edge: 1 and more")
        return given[0][first:] if self.axes == -1 else given[0][first : first + self.axes]


LAYER = ScaleLayer
