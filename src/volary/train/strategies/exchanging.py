"""What replicas that exchange contributions have in common."""

from __future__ import annotations

from typing import TYPE_CHECKING

from volary.train.replica import Voting

if TYPE_CHECKING:
    from volary.exchange.gradients.contributions import Contributions
    from volary.run.database.traffic import Traffic
    from volary.train.strategies.contribution import ContributionBuffers


class Exchanging(Voting):
    """See `volary.train.replica.Voting`. contribution: what travels, and the keeper that it is pushed to."""

    contribution: ContributionBuffers[Contributions]

    def __init__(self) -> None:
        self._version = 0  # the newest update that was released, of this plan

    def _release(self) -> None:
        """Parameters may change: to what all contribute to the next update."""
        self._version += 1
        self.contribution.keeper.release(self._version)

    @property
    def sent_bytes(self) -> int:
        """Bytes that this worker put on the wire since it started."""
        return self.contribution.sent_bytes

    @property
    def received_bytes(self) -> int:
        """Bytes that this worker took off the wire since it started."""
        return self.contribution.received_bytes

    @property
    def traffic(self) -> tuple[Traffic, ...]:
        """Both, by codec and route."""
        return self.contribution.traffic

    def close(self) -> None:
        """End the exchange and let go of the network."""
        self.contribution.let_go()
