"""All gradients are waited for once, at the end of backward; then all parameters are updated together."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from volary.train.agreement.first_state import DeferredTensors, share_now
from volary.train.agreement.votes import Agreed, Vote
from volary.train.strategies.exchanging import Exchanging

if TYPE_CHECKING:
    from collections.abc import Container, Mapping

    from torch import Tensor, nn

    from volary.exchange.gradients.bucket import Chunk
    from volary.exchange.gradients.contributions import PushedGradients
    from volary.exchange.overlap.comm_thread import ParcelTimes
    from volary.train.recording.recorder import Recorder
    from volary.train.strategies.contribution import ContributionBuffers
    from volary.train.update.whole import WholeUpdate


class AfterBackward(Exchanging):
    """A `volary.train.replica.Voting` that waits for all sums, and then updates all parameters."""

    contribution: ContributionBuffers[PushedGradients]

    def __init__(
        self,
        contribution: ContributionBuffers[PushedGradients],
        recorder: Recorder,
        update: WholeUpdate,
    ) -> None:
        super().__init__(contribution, recorder)
        self._update = update
        self._vote = Vote(0.0, busy=True, ending=False)

    def start(self, late: DeferredTensors) -> None:
        """Start the exchange, and give all ranks what rank 0 has."""
        share_now(self.contribution.alike, late, self.contribution.group, self.contribution.keeper.broadcast)
        self.contribution.start(votes_first=False, voted=self._take_votes, travelled=self._travelled)

    def update_own(self, gradients: Mapping[nn.Parameter, Tensor], scale: float) -> None:
        for parameter, gradient in gradients.items():
            parameter.grad = gradient
        self._update.apply(self._recorder.step, scale)

    def vote(self, vote: Vote) -> None:
        """Keep the vote for the last gradients: only then this rank knows what it has."""
        self._vote = vote
        self.contribution.pushed.in_backward(last=True)

    def agree(self) -> Agreed:
        """Wait until every parameter's gradient is the sum over all ranks."""
        contribution = self.contribution
        missing = contribution.pushed.complete()
        vote = replace(self._vote, busy=self._vote.busy and len(missing) < len(contribution.buckets.slots))
        self._recorder.enter("exchange")
        contribution.vote(vote)
        self._release()
        contribution.keeper.settle()
        agreed = self._take_agreed()
        contribution.pushed.buckets.deliver()
        if self._update.by_user:  # after this: nobody calls `apply`
            self._left_out(all_of_it=False)
        contribution.name_missing(agreed.busy)
        return agreed

    def drop(self, cleared: Container[int]) -> None:
        self.contribution.pushed.buckets.drop(cleared)

    def apply(self, scale: float = 1.0) -> None:
        self._left_out(all_of_it=False)  # before sums are changed in place
        self._update.apply(self._recorder.step, scale)

    def leave_out(self) -> None:
        self._update.forget()
        self._left_out(all_of_it=True)

    def forget(self) -> None:
        self.contribution.pushed.forget()

    def expect(self) -> None:
        self.contribution.pushed.begin()

    def settle(self) -> None:
        """Do nothing: all is done with the step."""

    def _travelled(self, chunk: Chunk, travelled: ParcelTimes) -> None:
        self._moved(chunk, travelled)
        spans, ready_s = self._recorder.spans, travelled.ready_s
        if spans.recording:
            spans.add(self._recorder.step + 1, "ready", chunk.name, ready_s, ready_s)
