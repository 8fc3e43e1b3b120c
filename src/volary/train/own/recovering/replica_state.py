"""A worker's replica of a model besides its parameters, where replicas differ: it is kept from group to group."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from volary.naming import named_parameters
from volary.train.state.rank_state import PARAMETERS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from torch import Tensor, nn

    from volary.train.replica import Voting
    from volary.train.strategies.strategy_state import StrategyState


@dataclass(frozen=True)
class ReplicaState:
    """alike: of all replicas, by the parameter's name, where each has its own beside. own: what this one alone has.

    outer: the state of the outer rule.
    """

    alike: Mapping[str, Tensor]
    own: Mapping[str, Any]
    outer: list[Any]

    @classmethod
    def of(cls, strategy: Voting, state: StrategyState) -> ReplicaState:
        """A copy of what it is now, when nothing exchanges."""
        alike = {name: one.detach().clone() for name, one in strategy.alike.items()}
        own = {name: one.rank_state() for name, one in strategy.own.items()}
        return cls(alike, deepcopy(own), deepcopy(state.outer.state()))

    @torch.no_grad()
    def give_alike(self, model: nn.Module) -> None:
        """Let the model have what all have alike, as a strategy begins with."""
        parameters = dict(named_parameters(model))
        for name, one in self.alike.items():
            parameters[name].copy_(one)

    def own_of(self, workers: int) -> dict[str, Any]:
        """A copy of this worker's own, in a group of so many."""
        own = deepcopy(dict(self.own))
        if PARAMETERS in own:
            own[PARAMETERS]["workers"] = workers
        return own
