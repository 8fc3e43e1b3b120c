"""The opposite of a concatenation: one edge is cut into several."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

from volary.errors import SettingError
from volary.network.layers._base import LayerKind, Shape, axis_of
from volary.network.operations.windows import refuse_below

if TYPE_CHECKING:
    from torch import nn


@dataclass(frozen=True, kw_only=True)
class SliceLayer(LayerKind):
    """Each part has the shape of the whole but for `axis`."""

    parts: int | None = None  # of equal size
    at: tuple[int, ...] | None = None  # positions where the second and each later part begins, instead of `parts`
    axis: int = 1  # which is cut

    def check(self) -> None:
        if (self.parts is None) == (self.at is None):
            raise SettingError("parts and at: accepted is one of them")
        if self.parts is not None:
            refuse_below("parts", self.parts, 1)
        if self.at is not None and (not self.at or any(b <= a for a, b in pairwise((0, *self.at)))):
            raise SettingError(f"at is {self.at}; accepted: positions above 0, each above the one before")

    @property
    def gives(self) -> int:
        return self.parts if self.parts is not None else len(self.at or ()) + 1

    def shapes(self, given: tuple[Shape, ...]) -> tuple[Shape, ...]:
        place = axis_of(self.axis, given[0])
        return tuple((*given[0][:place], size, *given[0][place + 1 :]) for size in self._sizes(given[0][place]))

    def build(self, given: tuple[Shape, ...]) -> nn.Module:
        from volary.network.operations.joining import Cut

        place = axis_of(self.axis, given[0])
        return Cut(self._sizes(given[0][place]), place + 1)

    def _sizes(self, whole: int) -> list[int]:
        if self.parts is not None:
            if whole % self.parts:
                raise SettingError(
                    f"cuts {whole} into equal parts; parts is {self.parts}, accepted: a divisor of {whole}"
                )
            return [whole // self.parts] * self.parts
        bounds = (0, *(self.at or ()), whole)
        if bounds[-2] >= whole:
            raise SettingError(f"at is {self.at}, beyond the size of {whole}")
        return [end - start for start, end in pairwise(bounds)]


LAYER = SliceLayer
