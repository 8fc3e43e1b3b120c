"""Gradients of a step that goes on with the next round of a loop, of which nothing may come: these are kept then."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from torch import Tensor

    from volary.train.own.gradients.losses import StepLoss


class CarriedGradients:
    """A copy of what all workers have agreed on, where the step has more passes. loss: of the step, so far."""

    def __init__(self, parameters: Iterable[Tensor], loss: StepLoss) -> None:
        self._copies = [(one, one.grad.detach().clone()) for one in parameters if one.grad is not None]
        self._loss, self._loss_state = loss, loss.state
        self._note()

    def changed(self, first: Tensor) -> bool:
        """Whether the loop has cleared or changed them, as a backward pass comes to its first parameter, of any shape.

        The gradient of that may have this pass in it; those of others may be in one buffer with it, and its version.
        """
        return any(
            one.grad is not seen or (one is first and seen._version - version > 1)
            for (one, _), (seen, version) in zip(self._copies, self._seen, strict=True)
        )

    def bring(self) -> None:
        """Let parameters have them, and the step its loss."""
        for one, before in self._copies:
            one.grad = before.clone()
        self._loss.go_on_from(self._loss_state)
        self._note()

    def _note(self) -> None:
        found = [one.grad for one, _ in self._copies]
        self._seen = [(one, one._version) for one in found if one is not None]
