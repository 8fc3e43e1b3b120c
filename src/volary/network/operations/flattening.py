"""A fully connected layer over several axes."""

from __future__ import annotations

from torch import Tensor, nn


class FlatteningLinear(nn.Linear):
    """torch's linear layer, whose inputs are all values from axis `first` on."""

    def __init__(self, inputs: int, outputs: int, *, bias: bool, first: int) -> None:
        super().__init__(inputs, outputs, bias=bias)
        self.first = first

    def forward(self, x: Tensor) -> Tensor:
        """Axes before `first` stay: (batch, ..., inputs in any shape) to (batch, ..., outputs)."""
        return super().forward(x.flatten(self.first))
