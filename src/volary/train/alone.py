"""One worker: nothing is exchanged."""

from __future__ import annotations

from typing import TYPE_CHECKING

from volary.train import votes

if TYPE_CHECKING:
    from volary.train.first_state import Late
    from volary.train.recorder import Recorder
    from volary.train.update import Update
    from volary.train.votes import Agreed


class Alone:
    """See `volary.train.strategy.Strategy`."""

    sent_bytes = received_bytes = 0

    def __init__(self, recorder: Recorder, update: Update | None) -> None:
        self._recorder, self._update = recorder, update
        self._votes = votes.cast(0.0, busy=False, ending=False, rank=0, world_size=1)

    def start(self, late: Late) -> None:
        """Nobody has to be told."""
        late.come()

    def vote(self, loss: float, *, busy: bool, ending: bool, lost: int = 0) -> None:
        """It is agreed at once."""
        self._votes = votes.cast(loss, busy=busy, ending=ending, rank=0, world_size=1, lost=lost)

    def agree(self) -> Agreed:
        """What was voted."""
        return votes.read(self._votes)

    def apply(self, scale: float = 1.0) -> None:
        """Update all parameters."""
        assert self._update is not None
        self._recorder.enter("optimizer")
        self._update.prepare(self._recorder.step)
        self._update.apply(scale)

    def leave_out(self) -> None:
        """Forget the step's gradients."""
        assert self._update is not None
        self._update.clear()

    def settle(self) -> None:
        """All is done."""

    def close(self) -> None:
        """Nothing is held."""
