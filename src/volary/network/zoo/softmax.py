"""Softmax regression: one fully connected layer on the raw values."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from volary.network.zoo._base import Network

if TYPE_CHECKING:
    from torch import nn


@dataclass(frozen=True, kw_only=True)
class Softmax(Network):
    """Multinomial logistic regression; 7,850 parameters on MNIST. The softmax itself is in the loss."""

    def build(self, input_shape: tuple[int, ...], classes: int) -> nn.Module:
        """Samples of any shape to (batch, classes)."""
        from torch import nn

        return nn.Sequential(nn.Flatten(), nn.Linear(math.prod(input_shape), classes))


NETWORK = Softmax
