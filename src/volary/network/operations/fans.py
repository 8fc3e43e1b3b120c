"""How many values a parameter connects: what its first values go by."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor


def fan(values: Tensor, by: str) -> float:
    """Inputs of one output of a weight (outputs, inputs, ...), its outputs of one input, or the average of both."""
    inside = values[0].numel()
    outside = values.numel() // values.shape[1] if values.dim() > 1 else values.numel()
    return {"fan_in": inside, "fan_out": outside, "average": (inside + outside) / 2}[by]
