"""DistBelief's speech network (Dean et al. 2012, section 5): 11 frames of 40 log-energies to 8192 acoustic states."""

from __future__ import annotations

import math
from collections import OrderedDict
from dataclasses import dataclass
from typing import TYPE_CHECKING

from volary.network.checks import at_least
from volary.network.zoo._base import Network

if TYPE_CHECKING:
    from torch import nn


@dataclass(frozen=True, kw_only=True)
class Speech(Network):
    """41,777,152 parameters on 11 x 40 values with 8192 classes; sigmoid units, fully connected."""

    hidden: int = 2560  # units of each hidden layer
    layers: int = 4  # hidden layers

    def check(self) -> None:
        at_least("hidden", self.hidden, 1)
        at_least("layers", self.layers, 1)

    def build(self, input_shape: tuple[int, ...], classes: int) -> nn.Module:
        """Samples of any shape to (batch, classes)."""
        from torch import nn

        layers: OrderedDict[str, nn.Module] = OrderedDict(flatten=nn.Flatten())
        width = math.prod(input_shape)
        for number in range(1, self.layers + 1):
            layers[f"fc{number}"] = nn.Linear(width, self.hidden)
            layers[f"sigmoid{number}"] = nn.Sigmoid()
            width = self.hidden
        layers["output"] = nn.Linear(width, classes)
        return nn.Sequential(layers)


NETWORK = Speech
