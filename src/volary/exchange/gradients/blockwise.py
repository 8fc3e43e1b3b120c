"""Layers as autograd computes them, but for their weight's gradient: it comes first, in blocks (`row_blocks`)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.nn.functional import linear

if TYPE_CHECKING:
    from torch.autograd.function import FunctionCtx

    from volary.exchange.gradients.row_blocks import RowBlocks

_Gradients = tuple[Tensor | None, Tensor | None, Tensor | None, None]


class BlockwiseLinear(torch.autograd.Function):
    """A fully connected layer. inputs: (..., in_features)."""

    @staticmethod
    def forward(ctx: FunctionCtx, inputs: Tensor, weight: Tensor, bias: Tensor | None, blocks: RowBlocks) -> Tensor:
        ctx.save_for_backward(inputs, weight)
        ctx.blocks = blocks  # type: ignore[attr-defined]
        return linear(inputs, weight, bias)

    @staticmethod
    def backward(ctx: Any, errors: Tensor) -> _Gradients:
        inputs, weight = ctx.saved_tensors
        wants_inputs, wants_weight, wants_bias, _ = ctx.needs_input_grad
        samples = errors.reshape(-1, errors.shape[-1])
        # the weight first: it has the longest way to go
        for_weight = [_linear_weight(samples, inputs, ctx.blocks) if wants_weight else None]
        for_inputs = errors @ weight if wants_inputs else None
        for_bias = samples.sum(0) if wants_bias else None
        # popped: autograd copies what anybody else refers to, and so does this frame while its stack is looked at
        return for_inputs, for_weight.pop(), for_bias, None


class BlockwiseConvolution(torch.autograd.Function):
    """A convolution of one group, padded with zeros. inputs: (batch, channels, ...)."""

    @staticmethod
    def forward(ctx: FunctionCtx, inputs: Tensor, weight: Tensor, bias: Tensor | None, blocks: RowBlocks) -> Tensor:
        ctx.save_for_backward(inputs, weight)
        ctx.blocks = blocks  # type: ignore[attr-defined]
        layer: Any = blocks.layer
        how = layer.stride, layer.padding, layer.dilation, layer.transposed, layer.output_padding, layer.groups
        return torch.convolution(inputs, weight, bias, *how)

    @staticmethod
    def backward(ctx: Any, errors: Tensor) -> _Gradients:
        inputs, weight = ctx.saved_tensors
        wants_inputs, wants_weight, wants_bias, _ = ctx.needs_input_grad
        blocks: RowBlocks = ctx.blocks
        layer: Any = blocks.layer
        if not wants_weight or not blocks.in_place():
            return *_convolution(layer, errors, inputs, weight, (wants_inputs, wants_weight, wants_bias)), None
        biases = []
        for rows, out, add in blocks.rows():
            # in halves 512 x 512 channels take half as long: the library's plan for all of them is a slow one
            _, block, bias = _convolution(layer, errors[:, rows], inputs, weight[rows], (False, True, wants_bias))
            assert block is not None
            out.add_(block) if add else out.copy_(block)
            biases.append(bias)
        for_inputs, _, _ = _convolution(layer, errors, inputs, weight, (wants_inputs, False, False))
        for_bias = torch.cat([bias for bias in biases if bias is not None]) if wants_bias else None
        return for_inputs, blocks.written(), for_bias, None


def _linear_weight(errors: Tensor, inputs: Tensor, blocks: RowBlocks) -> Tensor:
    """The weight's gradient from errors (samples, out_features) and inputs (..., in_features)."""
    inputs = inputs.reshape(-1, inputs.shape[-1])
    if not blocks.in_place():
        return errors.t() @ inputs
    for rows, out, add in blocks.rows():
        if add:
            out.addmm_(errors[:, rows].t(), inputs)
        else:
            torch.mm(errors[:, rows].t(), inputs, out=out)
    return blocks.written()


def _convolution(
    layer: Any, errors: Tensor, inputs: Tensor, weight: Tensor, wanted: tuple[bool, bool, bool]
) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
    """The gradients of inputs, weight and bias that are wanted; None for the others."""
    if not any(wanted):
        return None, None, None
    how = layer.stride, layer.padding, layer.dilation, layer.transposed, layer.output_padding, layer.groups
    found = torch.ops.aten.convolution_backward(errors, inputs, weight, [weight.shape[0]], *how, wanted)
    each: list[Tensor | None] = [one if is_wanted else None for one, is_wanted in zip(found, wanted, strict=True)]
    return each[0], each[1], each[2]
