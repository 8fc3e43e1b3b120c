"""Fragments of a network: some layers each, which are exchanged on their own (Douillard et al. 2025)."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

import torch
from torch import nn

from volary.naming import named_parameters
from volary.server.update_rule import SliceUpdate
from volary.train.agreement.votes import Vote
from volary.train.strategies.averaging.eager_guess import EagerGuess
from volary.train.strategies.averaging.skeleton import put
from volary.train.strategies.contribution import differences
from volary.train.strategies.exchanging import Exchanging
from volary.train.strategies.strategy_state import StrategyState

if TYPE_CHECKING:
    from torch import Tensor

    from volary.comm.groups.group import Group
    from volary.exchange.gradients.contributions import PushedDifferences
    from volary.exchange.representations._base import Representation
    from volary.server.update_rule import UpdateRule
    from volary.train.agreement.first_state import DeferredTensors
    from volary.train.agreement.votes import Agreed
    from volary.train.strategies.contribution import ContributionBuffers, StrategySettings


class Fragment(Exchanging):
    """See `volary.train.replica.Voting`. Of one fragment, with an exchange of its own; workers update it themselves.

    names: of its parameters. numbers: of all trained parameters, as the outer rule has them. Making one is a collective
    call.
    """

    contribution: ContributionBuffers[PushedDifferences]

    def __init__(
        self,
        settings: StrategySettings,
        representations: Mapping[str, Representation],
        group: Group,
        names: Collection[str],
        outer: UpdateRule,
        numbers: Mapping[str, int],
    ) -> None:
        own = replace(settings, module=_part(settings.module, names), state=StrategyState())
        super().__init__(differences(own, representations, group), settings.recorder)
        self._outer, self._numbers = outer, numbers
        self._vote = Vote(0.0, busy=True, ending=False)
        self._under_way: SliceUpdate | None = None  # of sums that are, but for them
        self.guess = EagerGuess(self.since) if settings.strategy.consistency.eager else None

    @property
    def since(self) -> Mapping[str, Tensor]:
        """The values that all workers have of it, by name; eager, what each takes these to be."""
        return self.contribution.pushed.since

    def start(self, late: DeferredTensors) -> None:
        """Start the exchange: all workers have the same of the fragment now, as the network has it."""
        self.contribution.pushed.begin()
        self.contribution.start(votes_first=True, voted=self._take_votes, travelled=self._moved)

    def vote(self, vote: Vote) -> None:
        self._vote = vote

    def agree(self) -> Agreed:
        """Let what was changed of it leave; wait for what all say."""
        if self.guess is not None:
            self.settle()
            self.guess.leave(self._changed(self._vote.weight))
        self.contribution.vote(self._vote)
        self.contribution.pushed.complete(self._vote.weight)
        self._release()
        return self._take_agreed()

    def apply(self, scale: float = 1.0) -> None:
        """Let the sums count, when they are here; eager, what they are taken to be at once."""
        self._under_way = SliceUpdate([], scale=scale, done=self._recorder.step + 1)
        if self.guess is not None:
            for name in self.since:
                self._step(name, replace(self._under_way, sums=[self.guess.guess(name, scale)], scale=1.0))

    def leave_out(self) -> None:
        """Let what has left not count; it leaves again with what comes next."""
        self.contribution.keeper.settle()
        self._left_out(all_of_it=True)

    @torch.no_grad()
    def settle(self) -> None:
        """Wait for the sums that are under way, and let what all workers have step by them, if it has not."""
        if self._under_way is None:
            return
        self.contribution.keeper.settle()
        for slot in self.contribution.slots:
            if self.guess is None:
                self._step(slot.name, replace(self._under_way, sums=[slot.agreed]))
            else:
                self.guess.arrive(slot.name, slot.agreed, self._under_way.scale)
        self._under_way = None

    def _step(self, name: str, update: SliceUpdate) -> None:
        self._outer.apply(self._numbers[name], [self.since[name]], update)

    @torch.no_grad()
    def _changed(self, weight: float) -> dict[str, Tensor]:
        """This worker's part of the sums that leave next."""
        slots = self.contribution.slots
        return {slot.name: (slot.parameter - self.since[slot.name]).mul_(weight) for slot in slots}

    @torch.no_grad()
    def mix(self, alpha: float) -> None:
        """Let this worker's parameters be `alpha` of its own, and for the rest what all have."""
        for slot in self.contribution.slots:
            slot.parameter.lerp_(self.since[slot.name], 1 - alpha)


def _part(module: nn.Module, names: Collection[str]) -> nn.Module:
    """The parameters with these names, in modules that compute nothing."""
    part = nn.Module()
    for name, parameter in named_parameters(module):
        if name in names:
            put(part, name, parameter)
    return part
