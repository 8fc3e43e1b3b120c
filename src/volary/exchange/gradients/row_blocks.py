"""A large layer's weight gradient, written in blocks of rows straight into its bucket, before that of its inputs.

Autograd would write it to fresh memory, from where it would be copied, and only then could its first values leave. Here
each block leaves the moment it is written. Of fully connected layers, and of convolutions on the CPU.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

import torch
from torch import Tensor, nn

from volary.exchange.gradients.blockwise import BlockwiseConvolution, BlockwiseLinear
from volary.exchange.gradients.plain_layers import in_type_of, looked_at, plain_layers, watched
from volary.exchange.gradients.plan import row_values

if TYPE_CHECKING:
    from volary.exchange.gradients.bucket import ParameterSlot
    from volary.exchange.gradients.buckets import Gradients

LARGE_BYTES = 2**20
_Blockwise: TypeAlias = type[BlockwiseLinear] | type[BlockwiseConvolution]


class RowBlocks:
    """Stands in for the forward of a layer whose weight, (rows, ...), has `slot`.

    uses: forward passes since its last gradient.
    """

    def __init__(self, layer: nn.Module, blockwise: _Blockwise, slot: ParameterSlot, buckets: Gradients) -> None:
        self.layer, self._blockwise, self.slot, self.buckets = layer, blockwise, slot, buckets
        self._dimensions = slot.parameter.dim() if blockwise is BlockwiseConvolution else None
        self.uses = 0

    def __call__(self, inputs: Tensor) -> Tensor:
        """Compute what the layer's own forward computes."""
        layer: Any = self.layer
        if (
            not in_type_of(self.slot.parameter, inputs)
            or not torch.is_grad_enabled()
            or self._dimensions not in (None, inputs.dim())
        ):
            output: Tensor = type(layer).forward(layer, inputs)
            return output
        self.uses += 1
        return self._blockwise.apply(inputs, layer.weight, layer.bias, self)  # type: ignore[no-any-return, no-untyped-call]

    def __reduce__(self) -> Any:
        """A copy of the network computes as usual: it is not what is trained."""
        return partial, (type(self.layer).forward, self.layer)

    def in_place(self) -> bool:
        """Whether this pass's gradient is written by `rows`: only this layer uses the weight in this step."""
        alone, self.uses = self.uses == 1, 0
        slot, buckets = self.slot, self.buckets
        if not alone or not buckets.in_backward or torch.is_grad_enabled() or watched(slot.parameter):
            return False
        # which is done with what comes by way of autograd
        return buckets.weight() == 1 and not looked_at(slot.parameter)

    def rows(self) -> Iterator[tuple[slice, Tensor, bool]]:
        """Rows, where their gradient is to be written, and whether to add it to what is there.

        What is known to be final leaves when the next rows are asked for.
        """
        slot, buckets = self.slot, self.buckets
        slot.written = True
        slot.departed = slot.alone and slot.left == 1
        row = row_values(slot.parameter)
        for chunk in slot.chunks:
            part = next(p for p, other in zip(chunk.parts, chunk.slots, strict=True) if other is slot)
            rows = slice(part.start // row, part.end // row)
            yield rows, slot.view[rows], slot.left < buckets.passes
            if slot.departed:
                buckets.part_written(chunk)

    def written(self) -> Tensor:
        """The gradient, in the weight's shape: a new tensor on the memory, which autograd takes without a copy."""
        return self.slot.view.view_as(self.slot.view)


def write_in_place(module: nn.Module, buckets: Gradients) -> list[nn.Module]:
    """Let the large layers of `module` that can write their gradients into their buckets; returns them.

    Not those that share a parameter with another layer, or that compute something else than a plain layer does.
    """
    slots = {id(slot.parameter): slot for slot in buckets.slots if slot.chunks[0].bucket.payload is None}
    changed: list[nn.Module] = []
    for part, weight in plain_layers(module):
        slot, blockwise = slots.get(id(weight)), _blockwise(part)
        if slot is None or blockwise is None or slot.view.numel() * slot.view.element_size() < LARGE_BYTES:
            continue
        if slot.view.is_contiguous() and slot.parameter.is_floating_point():
            vars(part)["forward"] = RowBlocks(part, blockwise, slot, buckets)
            changed.append(part)
    return changed


def write_as_usual(layers: Iterable[nn.Module]) -> None:
    """Let layers whose forward was replaced have their type's again."""
    for layer in layers:
        del vars(layer)["forward"]


def _blockwise(layer: nn.Module) -> _Blockwise | None:
    """How a layer of this type and these settings computes; None where it does so as usual."""
    if type(layer) is nn.Linear:
        return BlockwiseLinear
    if type(layer) not in (nn.Conv1d, nn.Conv2d, nn.Conv3d):
        return None
    convolution: Any = layer
    zeros = convolution.padding_mode == "zeros" and not isinstance(convolution.padding, str)
    plain = zeros and convolution.groups == 1 and convolution.weight.device.type == "cpu"
    return BlockwiseConvolution if plain else None
