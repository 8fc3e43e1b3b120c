"""Auxiliary heads: classifiers that read what flows between two stages, for training only."""

from __future__ import annotations

from collections import OrderedDict

from torch import Tensor, nn


class Tapped(nn.Module):
    """Stages one after another, and heads named like the stage whose output they read.

    While training it gives (answer, each head's answer ...), which the cross-entropy adds up with a weight for the
    heads; in evaluation mode the heads rest and it gives the answer alone.
    """

    def __init__(self, stages: OrderedDict[str, nn.Module], heads: dict[str, nn.Module]) -> None:
        super().__init__()
        self.stages = nn.ModuleDict(stages)
        self.heads = nn.ModuleDict(heads)

    def forward(self, x: Tensor) -> Tensor | tuple[Tensor, ...]:
        """(batch, channels, height, width) to (batch, classes), or to a tuple of such while training."""
        beside: list[Tensor] = []
        for name, stage in self.stages.items():
            x = stage(x)
            if self.training and name in self.heads:
                beside.append(self.heads[name](x))
        return (x, *beside) if beside else x
