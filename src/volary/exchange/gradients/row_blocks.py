"""A large fully connected layer's weight gradient, written in blocks of rows straight into its bucket.

Autograd would write it to fresh memory, from where it would be copied, and only then could its first values leave. Here
each block leaves the moment it is written.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.nn.functional import linear

from volary.exchange.gradients.plain_layers import looked_at, plain_layers, watched
from volary.exchange.gradients.plan import row_values

if TYPE_CHECKING:
    from torch.autograd.function import FunctionCtx

    from volary.exchange.gradients.bucket import ParameterSlot
    from volary.exchange.gradients.buckets import Gradients

LARGE_BYTES = 2**20


class RowBlocks:
    """Stands in for the forward of a layer whose weight has `slot`. uses: forward passes since its last gradient."""

    def __init__(self, layer: nn.Linear, slot: ParameterSlot, buckets: Gradients) -> None:
        self._layer, self.slot, self.buckets = layer, slot, buckets
        self.uses = 0

    def __call__(self, inputs: Tensor) -> Tensor:
        """What the layer's own forward computes."""
        weight, bias = self._layer.weight, self._layer.bias
        plain = torch.is_autocast_enabled(inputs.device.type) or inputs.dtype != weight.dtype
        if plain or not torch.is_grad_enabled():
            return linear(inputs, weight, bias)
        self.uses += 1
        output: Tensor = _Blockwise.apply(inputs, weight, bias, self)  # type: ignore[no-untyped-call]
        return output

    def __reduce__(self) -> Any:
        """A copy of the network computes as usual: it is not what is trained."""
        return partial, (nn.Linear.forward, self._layer)

    def gradient(self, errors: Tensor, inputs: Tensor) -> Tensor:
        """The weight's gradient from errors (..., out_features) and inputs (..., in_features).

        In its place in the bucket if only this layer uses the weight in this step; what is known to be final leaves.
        """
        errors, inputs = errors.reshape(-1, errors.shape[-1]), inputs.reshape(-1, inputs.shape[-1])
        alone, self.uses = self.uses == 1, 0
        slot, buckets = self.slot, self.buckets
        if not alone or not buckets.in_backward or torch.is_grad_enabled() or watched(slot.parameter):
            return errors.t() @ inputs
        if buckets.weight() != 1 or looked_at(slot.parameter):  # which is done with what comes by way of autograd
            return errors.t() @ inputs
        slot.written = True
        slot.departed = slot.alone and slot.left == 1
        row = row_values(slot.parameter)
        for chunk in slot.chunks:
            part = next(p for p, other in zip(chunk.parts, chunk.slots, strict=True) if other is slot)
            rows = slice(part.start // row, part.end // row)
            if slot.left == buckets.passes:
                torch.mm(errors[:, rows].t(), inputs, out=slot.view[rows])
            else:
                slot.view[rows].addmm_(errors[:, rows].t(), inputs)
            if slot.departed:
                buckets.part_written(chunk)
        return slot.view.view_as(slot.view)  # a new tensor on the same memory: autograd takes it without a copy


class _Blockwise(torch.autograd.Function):
    @staticmethod
    def forward(ctx: FunctionCtx, inputs: Tensor, weight: Tensor, bias: Tensor | None, blocks: RowBlocks) -> Tensor:
        ctx.save_for_backward(inputs, weight)
        ctx.blocks = blocks  # type: ignore[attr-defined]
        return linear(inputs, weight, bias)

    @staticmethod
    def backward(ctx: Any, errors: Tensor) -> tuple[Tensor | None, Tensor | None, Tensor | None, None]:
        inputs, weight = ctx.saved_tensors
        wants_inputs, wants_weight, wants_bias, _ = ctx.needs_input_grad
        # the weight first: it has the longest way to go
        for_weight = [ctx.blocks.gradient(errors, inputs) if wants_weight else None]
        for_inputs = errors @ weight if wants_inputs else None
        for_bias = errors.reshape(-1, errors.shape[-1]).sum(0) if wants_bias else None
        # popped: autograd copies what anybody else refers to, and so does this frame while its stack is looked at
        return for_inputs, for_weight.pop(), for_bias, None


def write_in_place(module: nn.Module, buckets: Gradients) -> list[nn.Module]:
    """Let the large fully connected layers of `module` write their gradients into their buckets; returns them.

    Not those that share a parameter with another layer, or that compute something else than a plain layer does.
    """
    slots = {id(slot.parameter): slot for slot in buckets.slots if slot.chunks[0].bucket.payload is None}
    changed: list[nn.Module] = []
    for part, weight in plain_layers(module):
        slot = slots.get(id(weight))
        if slot is None or type(part) is not nn.Linear or slot.view.numel() * slot.view.element_size() < LARGE_BYTES:
            continue
        if slot.view.is_contiguous() and slot.parameter.is_floating_point():
            vars(part)["forward"] = RowBlocks(part, slot, buckets)
            changed.append(part)
    return changed


def write_as_usual(layers: Iterable[nn.Module]) -> None:
    """Let layers whose forward was replaced have their type's again."""
    for layer in layers:
        del vars(layer)["forward"]
