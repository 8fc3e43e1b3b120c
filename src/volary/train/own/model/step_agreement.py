"""Agreements of workers with each step: its loss, whether the run ends, and that all are at the same place."""

from __future__ import annotations

from typing import TYPE_CHECKING

from volary.train.agreement.votes import Vote
from volary.train.own.rates import FollowedSettings
from volary.train.own.together import raise_diverged

if TYPE_CHECKING:
    from torch.optim import Optimizer

    from volary.comm.groups.group import Group
    from volary.train.agreement.votes import Agreed
    from volary.train.own.model.averaging_period import AveragingPeriod
    from volary.train.own.model.loop_run import LoopRun
    from volary.train.replica import Voting


class StepAgreement:
    """The agreements of one model. group: compares places if they differ. ending: all end after this step. changing:
    other workers follow these after it.
    """

    def __init__(self, run: LoopRun, group: Group) -> None:
        self.ending = self.changing = False
        self._run, self._group = run, group
        self._settings = FollowedSettings()
        self._ahead = False  # this step's votes have left

    def begin(self) -> None:
        """The model is distributed anew: nothing has been said."""
        self._ahead = False

    def within(self, group: Group) -> None:
        """Others compare their places with this worker's from now on; what others were asked to do is over."""
        self._group, self.changing = group, False
        self._settings = FollowedSettings()  # who joins has made no step

    def see(self, optimizer: Optimizer) -> None:
        """Remember the optimiser's settings: they must be those of all workers, whose replicas are equal."""
        self._settings.see(optimizer)

    def vote(self, strategy: Voting, loss: float, *, ahead: bool = False) -> None:
        """Say what this worker has found, unless that was said ahead. loss: its part in the mean over all samples."""
        if not self._ahead:
            ending = self._run.pulse.asked_to_end
            strategy.vote(Vote(loss, busy=True, ending=ending, place=self._counted(), requests=self._run.members.asked))
        self._ahead = ahead

    def vote_on_period(self, strategy: Voting, period: AveragingPeriod, world_size: int) -> None:
        """The same at the end of a period of workers' own updates."""
        ending, requests = self._run.pulse.asked_to_end, self._run.members.asked
        vote = period.vote(ending=ending, world_size=world_size, place=self._counted(), requests=requests)
        strategy.vote(vote)

    def reached(self, strategy: Voting) -> Agreed:
        """Return what all workers have voted. Raises RanksDiffer if they are at different places of their loops."""
        agreed = strategy.agree()
        if agreed.apart:
            raise_diverged(self._place(), self._settings.named(), self._group)
        self.ending = self.ending or agreed.ending
        self.changing = agreed.requests > 0
        return agreed

    def change(self) -> None:
        """Let other workers follow those of this step, which all have made. Raises Stopped if this one leaves."""
        self.changing = False
        self._run.members.change()

    def _counted(self) -> int:
        """Count what all workers have alike that are at the same place, and whose replicas stay equal."""
        return sum(self._place()) + self._settings.digest

    def _place(self) -> tuple[int, int]:
        """Where this worker is in its loop: steps that it has made, batches that it was given."""
        return self._run.recorder.step, self._run.share.batches
