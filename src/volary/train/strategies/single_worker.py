"""One worker: nothing is exchanged."""

from __future__ import annotations

from typing import TYPE_CHECKING

from volary.train.agreement import votes
from volary.train.agreement.votes import Vote
from volary.train.replica import Voting

if TYPE_CHECKING:
    from volary.run.database.traffic import Traffic
    from volary.train.agreement.first_state import DeferredTensors
    from volary.train.agreement.votes import Agreed
    from volary.train.recording.recorder import Recorder
    from volary.train.update.whole import WholeUpdate


class SingleWorker(Voting):
    """A `volary.train.replica.Voting` of one worker, which communicates with nobody."""

    traffic: tuple[Traffic, ...] = ()

    def __init__(self, recorder: Recorder, update: WholeUpdate) -> None:
        self._recorder, self._update = recorder, update
        self._agreed = votes.read(votes.cast(Vote(0.0, busy=False, ending=False), 0, 1), 1)

    def start(self, late: DeferredTensors) -> None:
        """Let `late` arrive at once: nobody has to be told."""
        late.on_arrival()

    def vote(self, vote: Vote) -> None:
        """Agree on the vote at once."""
        self._agreed = votes.read(votes.cast(vote, 0, 1), 1)

    def agree(self) -> Agreed:
        return self._agreed

    def update(self) -> None:
        """Update by this worker's gradients; there are none if its threads update, whose rate it sets then."""
        assert self._update is not None
        self._update.apply(self._recorder.step)

    def apply(self, scale: float = 1.0) -> None:
        self._update.apply(self._recorder.step, scale)

    def leave_out(self) -> None:
        self._update.forget()

    def settle(self) -> None:
        pass

    def close(self) -> None:
        pass
