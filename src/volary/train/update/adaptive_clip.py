"""Adaptive gradient clipping (Brock et al. 2021, arXiv:2102.06171): a gradient is small beside what it changes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from volary.train.update.held_parameters import parameters_of

if TYPE_CHECKING:
    from torch import Tensor
    from torch.optim import Optimizer

LEAST_NORM = 1e-3  # of weights, so that those that begin with 0 can move


def clip_by_weights(optimizer: Optimizer, most: float) -> Optimizer:
    """Let the optimiser clip gradients before each step; it is returned.

    Of each unit, a row of a matrix, a filter of a convolution, or a vector as a whole, the norm of the gradient becomes
    at most `most` times that of the weights.
    """

    def clip(own: Optimizer, *_: Any) -> None:
        for parameter in parameters_of(own):
            if parameter.grad is not None:
                parameter.grad = clipped(parameter.detach(), parameter.grad, most)

    optimizer.register_step_pre_hook(clip)
    return optimizer


def clipped(weights: Tensor, gradient: Tensor, most: float) -> Tensor:
    """The gradient, of the shape of `weights`, clipped; in other memory."""
    size, slope = _unit_norms(weights), _unit_norms(gradient)
    return gradient * (most * size.clamp(min=LEAST_NORM) / slope.clamp(min=1e-6)).clamp(max=1.0)


def _unit_norms(values: Tensor) -> Tensor:
    """Norms that broadcast to the values' shape: of all but the first dimension, or of a vector."""
    dims = tuple(range(1, values.ndim)) or None
    norms: Tensor = torch.linalg.vector_norm(values, dim=dims, keepdim=True)
    return norms
