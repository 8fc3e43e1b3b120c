"""The centre of elastic averaging on a worker over servers: it is pulled there, beside what the network has."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch

from volary.naming import named_parameters, trained_parameters
from volary.train.agreement.lent import lent
from volary.train.strategies.averaging.rank_parameters import RankParameters
from volary.train.strategies.averaging.skeleton import centre_of

if TYPE_CHECKING:
    from collections.abc import Sequence
    from contextlib import AbstractContextManager

    from torch import Tensor, nn

    from volary.train.served.layout import Layout


class Centre:
    """The centre of `module`, whose parameters stay this worker's own. part: of its distance by which it pulls.

    workers: of the run as it begins. It is a `RankState`: a checkpoint has each worker's own parameters.
    """

    def __init__(self, module: nn.Module, part: float, workers: int) -> None:
        self.part, self._rank = part, RankParameters(workers)
        self.own = trained_parameters(module)
        centre = dict(named_parameters(centre_of(module)))
        self._values = {name: centre[name] for name in self.own}
        self._begun = False

    def beside(self, layout: Layout) -> Layout:
        """The same cuts, whose values come to the centre; buffers stay the network's."""
        named = [[(name, self._values[name]) for name, _ in plan.parameters] for plan in layout.plans]
        plans = [replace(plan, parameters=one) for plan, one in zip(layout.plans, named, strict=True)]
        return replace(layout, plans=plans, tensors={**layout.tensors, **self._values})

    @torch.no_grad()
    def arrived(self) -> None:
        """Its values are here: a worker that has no parameters of its own yet begins there."""
        if not self._begun:
            self._begun = True
            for name, own in self.own.items():
                own.copy_(self._values[name])

    def in_network(self, found: Sequence[tuple[Tensor, Tensor]]) -> list[tuple[Tensor, Tensor]]:
        """The same tensors and values, both (...), with the network's parameters in the place of the centre's."""
        own = {id(self._values[name]): one for name, one in self.own.items()}
        return [(own.get(id(tensor), tensor), values) for tensor, values in found]

    def lent_as(self, found: Sequence[tuple[Tensor, Tensor]]) -> AbstractContextManager[object]:
        """Let tensors of the network have these values for a while; both (...)."""
        tensors, values = ({str(place): pair[of] for place, pair in enumerate(found)} for of in (0, 1))
        return lent(tensors, values)

    def lent(self) -> AbstractContextManager[object]:
        """Let the network have the centre for a while."""
        return lent(self.own, self._values)

    def rank_state(self) -> dict[str, Any]:
        """This worker's parameters, copied."""
        return self._rank.state({name: one.detach().clone() for name, one in self.own.items()})

    def restore_rank(self, states: Sequence[dict[str, Any]]) -> None:
        """Go on where this worker was; with another number of workers all begin at the centre."""
        if self._rank.restore(states):
            self._begun = True
            self._rank.give_back(self.own)
