"""What replicas that exchange contributions have in common."""

from __future__ import annotations

from typing import TYPE_CHECKING

from volary.train.replica import Voting

if TYPE_CHECKING:
    from volary.train.strategies.contribution import ContributionBuffers


class Exchanging(Voting):
    """See `volary.train.replica.Voting`. contribution: what travels, and the exchange that carries it."""

    contribution: ContributionBuffers

    @property
    def sent_bytes(self) -> int:
        """Bytes that this worker put on the wire since it started."""
        return self.contribution.sent_bytes

    @property
    def received_bytes(self) -> int:
        """Bytes that this worker took off the wire since it started."""
        return self.contribution.received_bytes

    def close(self) -> None:
        """End the exchange and let go of the network."""
        self.contribution.let_go()
