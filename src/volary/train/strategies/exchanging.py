"""The common part of replicas that exchange contributions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from volary.train.replica import Voting

if TYPE_CHECKING:
    from volary.exchange.gradients.bucket import Chunk
    from volary.exchange.gradients.contributions import Contributions
    from volary.exchange.overlap.comm_thread import ParcelTimes
    from volary.run.database.traffic import Traffic
    from volary.train.agreement.votes import Agreed
    from volary.train.recording.recorder import Recorder
    from volary.train.strategies.contribution import ContributionBuffers


class Exchanging(Voting):
    """See `volary.train.replica.Voting`. contribution: what travels, and the keeper that it is pushed to."""

    contribution: ContributionBuffers[Contributions]

    def __init__(self, contribution: ContributionBuffers[Contributions], recorder: Recorder) -> None:
        self.contribution, self._recorder = contribution, recorder
        self._version = 0  # the newest update that was released, of this plan
        self._agreed: Agreed | None = None  # by votes that are here, and were not taken yet

    def _release(self) -> None:
        """Parameters may change: to what all contribute to the next update."""
        self._version += 1
        self.contribution.keeper.release(self._version)

    def _left_out(self, *, all_of_it: bool) -> None:
        """The sums that are here change nothing: of parameters that nobody used, or `all_of_it`."""
        for chunk in self.contribution.buckets.chunks:
            self.contribution.keeper.left_out(chunk, all_of_it=all_of_it)

    def _take_votes(self) -> None:
        """The votes are here."""
        self._agreed = self.contribution.read()

    def _take_agreed(self) -> Agreed:
        """Wait for the votes of this step: what all agree on. Raises PeerLost."""
        if self._agreed is None:
            self.contribution.keeper.wait_for(lambda: self._agreed is not None)
        agreed, self._agreed = self._agreed, None
        assert agreed is not None
        return agreed

    def _moved(self, chunk: Chunk, travelled: ParcelTimes, step: int | None = None) -> None:
        """The first chunk of a parcel has come. step: of which it is; None: the one after those that are finished."""
        self._recorder.moved()
        spans = self._recorder.spans
        if spans.recording:
            number = self._recorder.step + 1 if step is None else step
            spans.add(number, "exchange", chunk.name, travelled.sent_s, travelled.received_s, chunk.wire_bytes)

    @property
    def traffic(self) -> tuple[Traffic, ...]:
        return self.contribution.traffic

    def close(self) -> None:
        """End the exchange and let go of the network."""
        self.contribution.let_go()
