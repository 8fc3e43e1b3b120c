"""Local updates: each worker updates its own replica, and now and then all replicas become their mean.

What travels is what a worker has changed since replicas were equal last, times its share of the samples: the sum over
all workers, added to what they were, is the mean of their parameters (Zinkevich et al., NIPS 2010). A step behind, that
sum travels under the next steps and is added after them, to what these have changed (CoCoD-SGD, Shen et al., IJCAI
2019).
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch

from volary.server.update_rule import SliceUpdate
from volary.train.agreement.first_state import share_now
from volary.train.agreement.votes import Vote
from volary.train.strategies.exchanging import Exchanging

if TYPE_CHECKING:
    from collections.abc import Mapping

    from torch import Tensor

    from volary.exchange.gradients.contributions import PushedDifferences
    from volary.server.update_rule import UpdateRule
    from volary.train.agreement.first_state import DeferredTensors
    from volary.train.agreement.votes import Agreed
    from volary.train.coordinator import LearnTask
    from volary.train.strategies.contribution import ContributionBuffers, StrategySettings
    from volary.train.update.whole import WholeUpdate


class LocalSteps(Exchanging):
    """See `volary.train.replica.Voting`. outer: of the agreed changes.

    Two copies of the parameters are kept: as they were when this worker began its steps (`_begun`), and as all workers
    had them when they were equal last (`_equal`). They differ only while a sum is under way, a step behind.
    """

    contribution: ContributionBuffers[PushedDifferences]

    def __init__(
        self,
        contribution: ContributionBuffers[PushedDifferences],
        settings: StrategySettings,
        update: WholeUpdate,
        outer: UpdateRule,
    ) -> None:
        super().__init__(contribution, settings.recorder)
        self._module, self._update, self._outer = settings.module, update, outer
        self._behind = settings.comm_setup.behind
        self._vote = Vote(0.0, busy=True, ending=False)
        self._equal = contribution.pushed.since
        self._begun = {name: torch.empty_like(one) for name, one in self._equal.items()} if self._behind else {}
        self._under_way: SliceUpdate | None = None  # what the sums that are make of what was equal, but for them

    def start(self, late: DeferredTensors) -> None:
        """Start the exchange, and give all ranks what rank 0 has."""
        share_now(list(self._module.parameters()), late, self.contribution.group, self.contribution.keeper.broadcast)
        self.contribution.start(votes_first=True, voted=self._take_votes, travelled=self._moved)

    @torch.no_grad()
    def begin(self, task: LearnTask) -> None:
        """Count what this worker changes from here on."""
        if self._under_way is None:
            self.contribution.pushed.begin()
        for slot in self.contribution.buckets.slots if self._behind else ():
            self._begun[slot.name].copy_(slot.parameter)

    def update(self) -> None:
        """Update this worker's parameters with its own gradients."""
        self._update.apply(self._recorder.step)

    def vote(self, vote: Vote) -> None:
        self._vote = vote

    def agree(self) -> Agreed:
        """Let what was changed leave, and wait for what all say of it; a step behind also for the sums before."""
        contribution = self.contribution
        self._recorder.enter("exchange")
        self._take_up(self._changed())
        contribution.vote(self._vote)
        contribution.pushed.complete(self._vote.weight)
        self._release()
        if not self._behind:
            contribution.keeper.settle()  # before anything counts: what is lost now has changed nothing
        return self._take_agreed()

    def apply(self, scale: float = 1.0) -> None:
        """Let the sums count: now, or a step behind before the next leave."""
        self._under_way = SliceUpdate([], scale=scale, done=self._recorder.step + 1)
        if not self._behind:
            self.settle()

    def leave_out(self) -> None:
        """Forget what was changed, on all workers."""
        self._recorder.enter("exchange")
        self.contribution.keeper.settle()
        self._left_out(all_of_it=True)
        self._update.forget()
        self.contribution.pushed.forget()

    def settle(self) -> None:
        """Wait for the sums that are under way, between two contributions: all replicas are equal then."""
        with self._recorder.waiting():
            self._take_up(None)

    @torch.no_grad()
    def take_back(self, own: Mapping[str, Any]) -> None:
        """Let the network have what all had when they were equal last."""
        for slot in self.contribution.slots:
            slot.parameter.copy_(self._equal[slot.name])

    @torch.no_grad()
    def _changed(self) -> dict[str, Tensor] | None:
        """The changes since the sums that are under way left; None: there are none."""
        if self._under_way is None:
            return None
        return {slot.name: slot.parameter - self._begun[slot.name] for slot in self.contribution.buckets.slots}

    @torch.no_grad()
    def _take_up(self, changed: dict[str, Tensor] | None) -> None:
        """Apply the sums that are under way to what was equal. changed: what this worker has added since they left."""
        if self._under_way is None:
            return
        self.contribution.keeper.settle()
        for number, slot in enumerate(self.contribution.slots):  # as the outer rule numbers them
            equal = self._equal[slot.name]
            self._outer.apply(number, [equal], replace(self._under_way, sums=[slot.agreed]))
            slot.parameter.copy_(equal if changed is None else equal + changed[slot.name])
        self._under_way = None
