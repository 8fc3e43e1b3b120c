"""A value that is added to each channel: a parameter, or what a second edge has."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

from volary.errors import SettingError
from volary.network.layers._base import LayerKind, Shape, axis_of
from volary.session.reading.choice import Choice

if TYPE_CHECKING:
    from torch import nn


@dataclass(frozen=True, kw_only=True)
class BiasLayer(LayerKind):
    """The first edge, plus parameters, or plus a second edge; its shape stays."""

    most: ClassVar[int | None] = 2

    axis: int = 1  # the first that the added values have; 0, with a second edge: that has the batch, too
    axes: int = 1  # how many axes they have; -1: all to the last
    filler: Annotated[Any, Choice("volary.network.fillers")] = "default"  # first values; default: 0

    def shapes(self, given: tuple[Shape, ...]) -> tuple[Shape, ...]:
        first, added = self._first(given), self._added(given)
        if given[0][first : first + len(added)] != added:
            raise SettingError(f"adds from axis {self.axis} on; accepted: a second edge with the sizes there")
        return (given[0],)

    def build(self, given: tuple[Shape, ...]) -> nn.Module:
        from volary.network.operations.scaling import AddEdge, AddParameters

        added = self._added(given)
        after = len(given[0]) - self._first(given) - len(added)
        return AddEdge(after) if len(given) == 2 else AddParameters(added, after)

    def fill(self, module: nn.Module) -> None:
        for _, values in module.named_parameters():
            self.filler.fill(values)

    def _first(self, given: tuple[Shape, ...]) -> int:
        if self.axis == 0 and len(given) == 1:
            raise SettingError("axis is 0, the batch; accepted with one edge: 1 and more")
        return 0 if self.axis == 0 else axis_of(self.axis, given[0])

    def _added(self, given: tuple[Shape, ...]) -> Shape:
        if len(given) == 2:
            return given[1]
        first = self._first(given)
        return given[0][first:] if self.axes == -1 else given[0][first : first + self.axes]


LAYER = BiasLayer
