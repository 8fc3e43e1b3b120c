"""From a network's output to what is written for each row: probabilities of classes, or numbers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from volary.network.criteria.classification import classes_last
from volary.network.criteria.fit import main_output

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class Answers:
    """classes: how many the outputs are scores of; 0: outputs are numbers. last: one position of each row is meant."""

    classes: int
    last: bool

    def of(self, output: Any, positions: Tensor, length: int) -> Tensor:
        """The values (n, ...) in float32, on the CPU, of an output (n, ...); a tuple's first counts.

        positions (n,): which position of a sequence, of `length`, is meant, if one is. Of classes it is the softmax.
        """
        values = main_output(output).detach()
        if self.last and values.dim() > 2:
            values = classes_last(values, (length,))[torch.arange(len(values), device=values.device), positions]
        elif self.classes and values.dim() > 2 and values.shape[-1] != self.classes == values.shape[1]:
            values = values.movedim(1, -1)
        values = values.float()
        return (values.softmax(-1) if self.classes else values).cpu()
