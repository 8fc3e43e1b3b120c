"""Gradients of parts of parameters: between `backward` and `optimizer.step()` nobody takes them for those of wholes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from volary.train.own.early.absent_gradient import AbsentGradient

if TYPE_CHECKING:
    from torch import Tensor


class CoveredGradients:
    """Gradients of `parameters`, which show as an `AbsentGradient` while they are covered. used: called by a use."""

    def __init__(self, parameters: Sequence[Tensor], used: Callable[[], None]) -> None:
        self._covers = [(one, AbsentGradient(one, used)) for one in parameters]
        self._own: dict[int, Tensor] = {}  # by the place of the parameter

    def cover(self) -> None:
        """From now on a use is noticed; what clears gradients clears them."""
        for place, (parameter, cover) in enumerate(self._covers):
            if parameter.grad is not None and parameter.grad is not cover:
                self._own[place], cover.added, parameter.grad = parameter.grad, None, cover

    def uncover(self) -> None:
        """Give parameters their gradients, and what a backward pass has added to them since."""
        for place, own in self._own.items():
            parameter, cover = self._covers[place]
            if parameter.grad is cover:
                parameter.grad = own if cover.added is None else own.add_(cover.added)
        self._own = {}
