"""Local steps of groups: workers with samples of their own keep one replica together, and groups meet now and then."""

from __future__ import annotations

from typing import TYPE_CHECKING

from volary.train.agreement.first_state import DeferredTensors
from volary.train.agreement.in_parts import vote_of_group
from volary.train.agreement.votes import Vote
from volary.train.replica import Voting

if TYPE_CHECKING:
    from collections.abc import Mapping

    from torch import Tensor, nn

    from volary.comm.groups.group import Group
    from volary.run.database.traffic import Traffic
    from volary.train.agreement.votes import Agreed
    from volary.train.coordinator import LearnTask
    from volary.train.strategies.averaging.kept_shares import KeptShares


class GroupSteps(Voting):
    """See `volary.train.replica.Voting`. within: updates the replica of this rank's group with each of its steps.

    between: takes the means with the workers that have the same of other groups' replicas. inside: the workers of this
    one's group. shares: what of the parameters this worker has, and gives the others of its group; None: they differ
    in what they have, and all of that is its own.
    """

    def __init__(self, within: Voting, between: Voting, inside: Group, shares: KeptShares | None) -> None:
        self._within, self._between, self._inside, self._shares = within, between, inside, shares
        self._vote = Vote(0.0, busy=True, ending=False)
        self._divisor = 1.0  # of the losses of the step at hand

    @property
    def traffic(self) -> tuple[Traffic, ...]:
        return (*self._within.traffic, *self._between.traffic)

    def start(self, late: DeferredTensors) -> None:
        """Start the exchanges, and give all ranks what rank 0 has, or of each part what its first rank has."""
        if self._shares is not None:
            self._shares.begin(late)
            late = DeferredTensors(new=False, shares=late.shares)
        self._between.start(late)
        self._within.start(DeferredTensors(new=False, shares=late.shares))

    def begin(self, task: LearnTask) -> None:
        if self._shares is not None:
            self._shares.take()
        self._between.begin(task)

    def vote_own(self, vote: Vote, divisor: float) -> None:
        self._divisor = divisor
        self._within.vote(vote)

    def update(self) -> None:
        """Update the group's replica with the mean over its samples, unless there are none."""
        agreed = self._within.agree()
        if agreed.counted:
            self._within.apply(agreed.scale(self._divisor))
        else:
            self._within.leave_out()

    def update_own(self, gradients: Mapping[nn.Parameter, Tensor], scale: float) -> None:
        self._within.update_own(gradients, scale)

    def vote(self, vote: Vote) -> None:
        self._vote = vote

    def agree(self) -> Agreed:
        """Wait for the group's own updates, and then for what groups say of them, which vote as one each."""
        self._within.settle()
        if self._shares is not None:
            self._shares.take()
        self._between.vote(vote_of_group(self._vote, self._inside))
        return self._between.agree()

    def apply(self, scale: float = 1.0) -> None:
        self._between.apply(scale)
        if self._shares is not None:
            self._shares.give()

    def leave_out(self) -> None:
        self._between.leave_out()
        if self._shares is not None:
            self._shares.give()

    def await_all(self) -> None:
        self._within.await_all()

    def settle(self) -> None:
        self._within.settle()
        self._between.settle()

    def gathers_anew(self) -> bool:
        return self._within.gathers_anew()

    def finish(self) -> None:
        self._within.finish()
        self._between.finish()

    def close(self) -> None:
        self._within.close()
        self._between.close()
