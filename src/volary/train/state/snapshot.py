"""A moment of training, kept in memory to come back to."""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy
from typing import TYPE_CHECKING

import torch

from volary.train.state.seeds import generators_state, restore_generators

if TYPE_CHECKING:
    from torch import nn

    from volary.train.state.stateful import RankState, Stateful


class RankSnapshot:
    """Everything of one rank that decides how training continues, as in a checkpoint; between two steps, when settled.

    parts: what else there is besides the network and the random generators. residuals: those of this rank's codecs.
    """

    def __init__(self, module: nn.Module, parts: Sequence[Stateful], residuals: RankState) -> None:
        tensors = (*module.parameters(), *module.buffers())
        self._tensors = [(tensor, tensor.detach().clone()) for tensor in tensors]
        self._parts = [(part, deepcopy(part.state())) for part in parts]
        self._residuals, self._left_out = residuals, deepcopy(residuals.rank_state())
        self._generators = generators_state()

    def restore(self) -> None:
        """Let all be as it was; this may be done again and again."""
        with torch.no_grad():
            for tensor, kept in self._tensors:
                tensor.copy_(kept)
        for part, state in self._parts:
            part.restore(deepcopy(state))  # an optimiser goes on in the tensors that it is given
        self._residuals.restore_rank([deepcopy(self._left_out)])
        restore_generators(self._generators)
