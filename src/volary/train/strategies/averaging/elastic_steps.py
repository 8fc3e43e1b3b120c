"""Elastic averaging in lock step: workers pull a centre, of which each has a copy, and are pulled by it.

What travels is a part of each worker's distance to the centre, as a contribution begins: the sum over all workers is
what the centre moves by. The worker computes its next gradient where it is, and then goes back by as much as it has
pulled: the published recursion (Zhang, Choromanska and LeCun, NIPS 2015, equations 2 and 3). Nobody needs the sum
before the next pull, so it travels under all that is computed until then.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch

from volary.naming import trained_parameters
from volary.server.update_rule import SliceUpdate
from volary.train.agreement.first_state import share_now
from volary.train.agreement.lent import lent
from volary.train.agreement.votes import Vote
from volary.train.state.rank_state import PARAMETERS
from volary.train.strategies.averaging.rank_parameters import RankParameters
from volary.train.strategies.averaging.skeleton import centre_of
from volary.train.strategies.contribution import pulls
from volary.train.strategies.exchanging import Exchanging

if TYPE_CHECKING:
    from torch import Tensor

    from volary.comm.groups.group import Group
    from volary.exchange.gradients.contributions import PushedPulls
    from volary.exchange.representations._base import Representation
    from volary.train.agreement.first_state import DeferredTensors
    from volary.train.agreement.votes import Agreed
    from volary.train.coordinator import LearnTask
    from volary.train.state.stateful import RankState
    from volary.train.strategies.contribution import ContributionBuffers, StrategySettings
    from volary.train.update.whole import WholeUpdate


class ElasticSteps(Exchanging):
    """See `volary.train.replica.Voting`. part: of its distance by which a worker pulls.

    Making one is a collective call. A checkpoint has the centre, and each worker's own parameters (see `RankState`).
    """

    contribution: ContributionBuffers[PushedPulls]

    def __init__(
        self,
        settings: StrategySettings,
        representations: Mapping[str, Representation],
        group: Group,
        update: WholeUpdate,
        part: float,
    ) -> None:
        self._outer = settings.state.outer.of(settings.module, settings.strategy.consistency)
        self._centre = centre_of(settings.module)
        own = trained_parameters(settings.module)
        self._numbers = {name: number for number, name in enumerate(own)}  # as the rule of the centre has them
        around = replace(settings, module=self._centre)
        super().__init__(pulls(around, representations, group, own, part), settings.recorder)
        self._module, self._group, self._update = settings.module, group, update
        self._vote = Vote(0.0, busy=True, ending=False)
        self._own = RankParameters(group.size)

    def start(self, late: DeferredTensors) -> None:
        """Start the exchange, and give all ranks what rank 0 has, or each what it had when a checkpoint was saved."""
        share_now(list(self._module.parameters()), late, self._group, self.contribution.keeper.broadcast)
        self.take_own()
        self.contribution.start(votes_first=False, voted=self._take_votes, travelled=self._moved)

    def begin(self, task: LearnTask) -> None:
        """Let this worker's pull leave, which is of where it and the centre are now."""
        self.contribution.pushed.begin()
        self.contribution.pushed.leave()

    def update(self) -> None:
        """Update this worker's parameters with its own gradients, and let the centre pull them."""
        self._update.apply(self._recorder.step)
        self.updated()

    def updated(self) -> None:
        self.contribution.pushed.updated()

    def vote(self, vote: Vote) -> None:
        self._vote = vote

    def agree(self) -> Agreed:
        """Wait for the pulls of all workers, and for what they say of the step."""
        self._recorder.enter("exchange")
        self.contribution.vote(self._vote)
        self._release()
        self.contribution.keeper.settle()
        return self._take_agreed()

    @torch.no_grad()
    def apply(self, scale: float = 1.0) -> None:
        """Move the centre by what all have pulled."""
        self.contribution.pushed.updated()  # if it learnt from nothing
        for slot in self.contribution.slots:
            update = SliceUpdate([slot.agreed], done=self._recorder.step + 1)
            self._outer.apply(self._numbers[slot.name], [slot.parameter], update)

    def leave_out(self) -> None:
        """Let nobody have pulled, on all workers; what a worker has updated by itself stays."""
        self._left_out(all_of_it=True)
        self.contribution.pushed.forget()
        self._update.forget()

    def settle(self) -> None:
        """Do nothing: all is done with the contribution."""

    @property
    def own(self) -> Mapping[str, RankState]:
        return {PARAMETERS: self}

    @property
    def alike(self) -> Mapping[str, Tensor]:
        return {slot.name: slot.parameter for slot in self.contribution.slots}

    @contextmanager
    def consensus(self) -> Iterator[None]:
        """Lend the network the centre."""
        with lent(self.contribution.pushed.own, self.alike) as self._own.values:
            yield
        self._own.values = {}

    @torch.no_grad()
    def take_back(self, own: Mapping[str, Any]) -> None:
        """Let the network have the centre."""
        for slot in self.contribution.slots:
            self.contribution.pushed.own[slot.name].copy_(slot.parameter)

    def rank_state(self) -> dict[str, Any]:
        """This worker's own parameters, as they are outside of `consensus`."""
        return self._own.state({name: one.detach() for name, one in self.contribution.pushed.own.items()})

    def restore_rank(self, states: Sequence[dict[str, Any]]) -> None:
        """Begin with this worker's own parameters; with another number of workers all begin with the centre."""
        self._own.restore(states)

    @torch.no_grad()
    def take_own(self) -> None:
        """The network has the centre, as a checkpoint has it; this worker's parameters become its own again."""
        for slot in self.contribution.slots:
            slot.parameter.copy_(self.contribution.pushed.own[slot.name])
        self._own.give_back(self.contribution.pushed.own)
