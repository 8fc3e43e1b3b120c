"""Layers that compute for the samples of all workers: the gradients of each worker's count by its share of the batch.

Elsewhere a worker's gradients get their weight as they leave. The weights of such a layer get theirs from the errors of
all workers at once, and these never leave.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from torch.autograd import Function

if TYPE_CHECKING:
    from torch import Tensor, nn
    from torch.utils.hooks import RemovableHandle


def weigh_errors(layer: nn.Module, weight: Callable[[], float]) -> list[RemovableHandle]:
    """Let errors that come to the layer count by `weight`, and those that leave it as if they had not been."""

    def unweighed() -> float:
        own = weight()
        return 1 / own if own else 0.0

    def enter(_: nn.Module, inputs: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        return _Weighed.apply(inputs[0], unweighed), *inputs[1:]  # type: ignore[no-untyped-call]

    def leave(_: nn.Module, _inputs: Any, outputs: Tensor) -> Tensor:
        found: Tensor = _Weighed.apply(outputs, weight)  # type: ignore[no-untyped-call]
        return found

    return [layer.register_forward_pre_hook(enter), layer.register_forward_hook(leave)]


class _Weighed(Function):
    """A tensor as it is, whose gradient is multiplied on its way back, by what the factor is then."""

    @staticmethod
    def forward(ctx: Any, values: Tensor, factor: Callable[[], float]) -> Tensor:
        ctx.factor = factor
        return values.view_as(values)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        factor = ctx.factor()
        if not factor:  # without anything that counts: whatever was computed, NaN too
            return gradients[0].new_zeros(gradients[0].shape), None
        return gradients[0] if factor == 1.0 else gradients[0] * factor, None
