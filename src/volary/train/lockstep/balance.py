"""Shares of each batch that follow the measured speed of workers: `strategy.balance: auto`."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from volary.sharding.balancing import BalancedShares

if TYPE_CHECKING:
    from volary.data.feed import Feed
    from volary.session.spec import Session
    from volary.train.agreement.votes import Agreed
    from volary.train.recording.recorder import Recorder


class Balance:
    """Gives a worker's `feed` its share of the next batches, as all workers agree on; see `Stateful`."""

    def __init__(self, shares: BalancedShares, feed: Feed, recorder: Recorder) -> None:
        self._shares, self._feed, self._recorder = shares, feed, recorder

    @classmethod
    def of(cls, session: Session, feed: Feed, recorder: Recorder) -> Balance | None:
        """The balance that the session asks for; None if shares stay as they are."""
        if session.strategy.balance == "equal" or feed.share.count == 1:
            return None
        shares = BalancedShares(feed.batch_size, feed.share.count, session.train.accumulate)
        return cls(shares, feed, recorder)

    def see(self, agreed: Agreed) -> None:
        """Note how fast all are; from the next batch on shares may be others."""
        was = self._shares.each
        if self._shares.see(agreed.sample_s):
            self._share_out()
            if self._recorder.leads:
                self._recorder.event("balanced", samples=self._shares.each, was=was)

    def state(self) -> dict[str, Any]:
        """The samples of each worker; none while shares are about equal."""
        return {"sizes": list(self._shares.sizes)}

    def restore(self, state: Any) -> None:
        """Go on with the shares of a checkpoint, if it has as many workers."""
        self._shares.take(state["sizes"])
        self._share_out()

    def _share_out(self) -> None:
        self._feed.share = replace(self._feed.share, sizes=self._shares.sizes)
