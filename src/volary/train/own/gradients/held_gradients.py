"""Gradients of a step of several backward passes: what buckets have taken of it, and what was agreed on before."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from volary.train.own.early.absent_gradient import AbsentGradient

if TYPE_CHECKING:
    from torch import Tensor


class HeldGradients:
    """Holds gradients of some parameters. Gradients that buckets have taken show as an `AbsentGradient`. look: called
    then.

    What was agreed on before is kept aside while later passes travel: it must not be added up once more.
    """

    def __init__(self, parameters: Sequence[Tensor], look: Callable[[], None]) -> None:
        self._parameters, self._look = parameters, look
        self._absent: list[AbsentGradient] = []
        self._hidden = False
        self._aside: list[tuple[Tensor, Tensor]] = []  # parameters with the gradients that were agreed on
        self._first: Tensor | None = None  # that the newest pass came to
        self._version = -1  # of its gradient, as it was agreed on

    def put_placeholders(self) -> None:
        """Buckets have the gradients of all: nothing of them is to be seen, and each use to be noticed."""
        if not self._absent:
            self._absent = [AbsentGradient(one, self._look) for one in self._parameters]
        for parameter, absent in zip(self._parameters, self._absent, strict=True):
            absent.added = None
            parameter.grad = absent
        self._hidden = True

    def remove_placeholders(self) -> set[int]:
        """Leave parameters what autograd has added since. Returns the ids of those that were cleared meanwhile."""
        if not self._hidden:
            return set()
        self._hidden, cleared = False, set[int]()
        for parameter, absent in zip(self._parameters, self._absent, strict=True):
            if isinstance(parameter.grad, AbsentGradient):
                parameter.grad = parameter.grad.added
            elif absent.added is None:  # else a bucket has taken it
                cleared.add(id(parameter))
        self._aside = [one for one in self._aside if id(one[0]) not in cleared]
        return cleared

    def reached(self, first: Tensor, *, agreed: bool) -> bool:
        """A backward pass comes to its first parameter, of any shape. agreed: there may be gradients agreed on before.

        Returns whether there are some, with which those of this pass are added up.
        """
        same, self._first = first is self._first, first
        if not agreed:
            return False
        for parameter in self._parameters:
            gradient = parameter.grad
            # of the first one they are one sum already, unless factors travel instead
            if gradient is not None and (parameter is not first or (same and gradient._version == self._version)):
                self._aside.append((parameter, gradient.clone()))  # which is where the next sum will be
                parameter.grad = None
        return any(bool(gradient.count_nonzero()) for _, gradient in self._aside)

    def agreed(self) -> None:
        """Parameters have what this step's passes have added to what was agreed on before: let them have both."""
        for parameter, before in self._aside:
            parameter.grad = before if parameter.grad is None else parameter.grad.add_(before)
        self._aside.clear()
        if self._first is not None and self._first.grad is not None:
            self._version = self._first.grad._version
