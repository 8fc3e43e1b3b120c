"""Gossip: each worker updates its own replica, which then becomes the mean of its own and its partners' parameters.

So replicas differ, and the one model that they are is their mean, which taking means with partners preserves (Lian et
al., NIPS 2017). A step behind, parameters travel under the next step, and what that changes is added to their mean: the
order of D-PSGD as it was published. With momentum it is NoLoCo, see `gossip_momentum`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch

from volary.server.update_rule import SliceUpdate
from volary.train.agreement.first_state import share_now
from volary.train.agreement.lent import lent_mean
from volary.train.agreement.votes import Vote
from volary.train.state.rank_state import PARAMETERS
from volary.train.strategies.averaging.gossip_momentum import GossipMomentum
from volary.train.strategies.averaging.rank_parameters import RankParameters
from volary.train.strategies.contribution import parameters
from volary.train.strategies.exchanging import Exchanging

if TYPE_CHECKING:
    from torch import Tensor

    from volary.comm.groups.group import Group
    from volary.exchange.gradients.contributions import PushedParameters
    from volary.train.agreement.first_state import DeferredTensors
    from volary.train.agreement.votes import Agreed
    from volary.train.coordinator import LearnTask
    from volary.train.state.stateful import RankState
    from volary.train.strategies.contribution import ContributionBuffers, StrategySettings
    from volary.train.update.whole import WholeUpdate


class GossipSteps(Exchanging):
    """See `volary.train.replica.Voting`. Making one is a collective call.

    A checkpoint has the mean of all replicas, and of each worker its own (see `RankState`). So it is with averages of
    weights: of the mean of replicas that keep one each, their mean is the average.
    """

    contribution: ContributionBuffers[PushedParameters]

    def __init__(self, settings: StrategySettings, group: Group, update: WholeUpdate) -> None:
        super().__init__(parameters(settings, group, lambda rank: self._partners[rank]), settings.recorder)
        self._module, self._group, self._update = settings.module, group, update
        self._consistency, self._behind = settings.strategy.consistency, settings.comm_setup.behind
        self._partners: Sequence[Sequence[int]] = ()  # by rank, those whose parameters it receives
        self._averages = settings.state.outer
        self._kept = self._averages.of(settings.module, self._consistency)
        self._step = 0
        self._under_way = False
        self._vote = Vote(0.0, busy=True, ending=False)
        self._own = RankParameters(group.size)
        self._restored: Mapping[str, Any] | None = None  # of the momentum, until the network has what was
        self._momentum: GossipMomentum | None = None
        if not self._consistency.plain:
            one = self._consistency
            self._momentum = GossipMomentum(self._trained(), one.momentum, one.lr, one.gamma)
            self.contribution.pushed.write = self._momentum.write

    def start(self, late: DeferredTensors) -> None:
        """Start the exchange, and give all ranks what rank 0 has, or each what it had when a checkpoint was saved."""
        share_now(list(self._module.parameters()), late, self._group, self.contribution.keeper.broadcast)
        self.take_own()
        self.contribution.start(votes_first=True, voted=self._take_votes, travelled=self._moved)

    def begin(self, task: LearnTask) -> None:
        self._step = task.clock

    def update(self) -> None:
        """Update this worker's parameters with its own gradients."""
        self._update.apply(self._recorder.step)

    def vote(self, vote: Vote) -> None:
        self._vote = vote

    def agree(self) -> Agreed:
        """Let parameters leave, and wait for what all say of the step; a step behind first for the means before."""
        self._recorder.enter("exchange")
        self._take_mean()
        size = self._group.size
        self._partners = [self._consistency.partners(self._step, rank, size) for rank in range(size)]
        self.contribution.vote(self._vote)
        self.contribution.pushed.complete()
        self._release()
        if not self._behind:
            self.contribution.keeper.settle()  # before anything counts: what is lost now has changed nothing
        return self._take_agreed()

    def apply(self, scale: float = 1.0) -> None:
        """Let the means count: now, or a step behind before parameters leave again."""
        self._under_way = True
        if not self._behind:
            self.settle()
        done = SliceUpdate([None], done=self._recorder.step + 1)
        for number, parameter in enumerate(self._trained().values()):
            self._kept.apply(number, [parameter], done)  # changes nothing, and lets it enter the average

    def leave_out(self) -> None:
        """Take no mean, on all workers; what a worker has updated by itself stays."""
        self._recorder.enter("exchange")
        self.contribution.keeper.settle()
        self._update.forget()

    def settle(self) -> None:
        """Wait for the means that are under way."""
        with self._recorder.waiting():
            self._take_mean()

    @property
    def own(self) -> Mapping[str, RankState]:
        return {PARAMETERS: self}

    @contextmanager
    def consensus(self) -> Iterator[None]:
        """Lend the network the mean of all replicas."""
        self.settle()
        with lent_mean(self._meant(), 1 / self._group.size, self._group) as self._own.values:
            yield
        self._own.values = {}

    def rank_state(self) -> dict[str, Any]:
        """This worker's parameters, averages and momentum."""
        momentum = {} if self._momentum is None else {"momentum": self._momentum.state()}
        return {**self._own.state(self._meant()), **momentum}

    def restore_rank(self, states: Sequence[dict[str, Any]]) -> None:
        """Begin with this worker's own parameters; with another number of workers all begin with the mean."""
        self._restored = self._own.restore(states).get("momentum")

    @torch.no_grad()
    def take_back(self, own: Mapping[str, Any]) -> None:
        """Let the network have this worker's parameters as they were."""
        for name, values in own[PARAMETERS]["values"].items():
            self._meant()[name].copy_(values)

    def take_own(self) -> None:
        """This worker's parameters become its own again, as they were restored."""
        self._own.give_back(self._meant())
        if self._momentum is not None and self._restored is not None:
            self._momentum.restore(self._restored)
        elif self._momentum is not None:
            self._momentum.begin()
        self._restored = None

    def _trained(self) -> dict[str, Tensor]:
        return {slot.name: slot.parameter.detach() for slot in self.contribution.slots}

    def _meant(self) -> dict[str, Tensor]:
        """The tensors that the mean of all replicas is taken of: parameters by name, and averages by the number of
        theirs.
        """
        return {**self._trained(), **{str(number): one for number, one in self._averages.averages().items()}}

    @torch.no_grad()
    def _take_mean(self) -> None:
        """Let what has left, if it did, become its mean with the partners'; what was changed since stays."""
        if not self._under_way:
            return
        self.contribution.keeper.settle()
        for slot in self.contribution.slots:
            if self._momentum is None:
                slot.parameter.sub_(slot.view).add_(slot.agreed)
            else:
                self._momentum.take(slot)
        self._under_way = False
