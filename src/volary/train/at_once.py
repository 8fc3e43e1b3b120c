"""All gradients are waited for once, at the end of backward; then all parameters are updated together."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from volary.train.first_state import Late, share_now
from volary.train.votes import Agreed

if TYPE_CHECKING:
    from torch import nn

    from volary.exchange._bucket import Chunk
    from volary.exchange._line import Travelled
    from volary.train.contribution import Contribution
    from volary.train.recorder import Recorder
    from volary.train.update import Update


class AtOnce:
    """See `volary.train.strategy.Strategy`. update: None where a user's own loop updates, after `agree`."""

    def __init__(
        self, contribution: Contribution, module: nn.Module, recorder: Recorder, update: Update | None
    ) -> None:
        self.contribution, self._module, self._recorder, self._update = contribution, module, recorder, update
        self._loss, self._busy, self._ending, self._lost = 0.0, True, False, 0
        self._agreed: Agreed | None = None

    @property
    def sent_bytes(self) -> int:
        """Bytes that this worker put on the wire since it started."""
        return self.contribution.sent_bytes

    @property
    def received_bytes(self) -> int:
        """Bytes that this worker took off the wire since it started."""
        return self.contribution.received_bytes

    def start(self, late: Late) -> None:
        """Start the exchange, and give all ranks what rank 0 has."""
        share_now(list(self._module.parameters()), late, self.contribution.exchange.broadcast)
        self.contribution.start(
            votes_first=False, heard=self._hear, apply=None, travelled=self._travelled, applied=_nothing
        )

    def vote(self, loss: float, *, busy: bool, ending: bool, lost: int = 0) -> None:
        """To be sent with the last gradients: only then is known what this rank has."""
        self._loss, self._busy, self._ending, self._lost = loss, busy, ending, lost
        self.contribution.buckets.in_backward = True

    def agree(self) -> Agreed:
        """Wait until every parameter's gradient is the sum over all ranks."""
        contribution = self.contribution
        busy = contribution.close() and self._busy
        self._recorder.enter("exchange")
        contribution.vote(self._loss, busy=busy, ending=self._ending, lost=self._lost)
        contribution.exchange.release()
        contribution.exchange.settle()
        contribution.exchange.wait_for(lambda: self._agreed is not None)
        agreed, self._agreed = self._agreed, None
        assert agreed is not None
        contribution.buckets.deliver()
        contribution.name_missing(agreed.busy)
        return agreed

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
        """All is done with the step."""

    def close(self) -> None:
        """End the exchange and let go of the network."""
        self.contribution.let_go()

    def _hear(self) -> None:
        self._agreed = self.contribution.read()

    def _travelled(self, chunk: Chunk, travelled: Travelled) -> None:
        self._recorder.moved()
        spans, step = self._recorder.spans, self._recorder.step + 1
        if spans.recording:
            spans.add(step, "ready", chunk.name, travelled.ready_s, travelled.ready_s)
            spans.add(step, "exchange", chunk.name, travelled.sent_s, travelled.received_s, chunk.wire_bytes)


def _nothing(*_: Any) -> None:
    """Nobody asks."""
