"""The share that one rank alone keeps of a network: parameters, and what the optimiser remembers of them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import torch

from volary.exchange.gradients.plan import in_memory_order, values_in
from volary.naming import named_parameters
from volary.sharding.ranges import Range
from volary.train.state.optimizer_state import OptimizerState

if TYPE_CHECKING:
    from torch import nn

    from volary.sharding.holdings import Holdings
    from volary.train.state.part_state import PartState
    from volary.train.state.stateful import Stateful


class RankShare:
    """This rank's share of `module`, by the map of `holdings`. update: what remembers something of it."""

    def __init__(self, module: nn.Module, holdings: Holdings, update: Stateful) -> None:
        self._named, self._holdings, self._update = dict(named_parameters(module)), holdings, update

    def state(self) -> Any:
        """The share in plain values and tensors, in their own memory, all updates done."""
        named, owned = self._named, self._holdings.owned
        values = [[part.name, part.start, part.end, values_in(part, named[part.name])] for part in owned]
        return {"parameters": values, "update": self._update.state()}

    @torch.no_grad()
    def take(self, shares: Iterable[Any]) -> None:
        """Take, from the shares of all ranks of another group, what this one keeps; rank 0 takes all parameters."""
        found: list[PartState] = []
        for share in shares:
            state = OptimizerState.from_plain(share["update"])
            for name, start, end, values in share["parameters"]:
                if self._holdings.leads:
                    in_memory_order(self._named[name].detach())[start:end].copy_(values)
                found += [state.of(own) for own in self._holdings.kept(Range(name, start, end))]
        self._update.restore(OptimizerState(found).plain())
