"""Puts the four axes together: how replicas stay one model."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from volary.train.alone import Alone
from volary.train.at_once import AtOnce
from volary.train.contribution import Contribution
from volary.train.overlapping import Overlapping

if TYPE_CHECKING:
    from torch import nn

    from volary.session.spec import Strategy as Settings
    from volary.train.bulletin import Bulletin
    from volary.train.first_state import Late
    from volary.train.recorder import Recorder
    from volary.train.update import Update
    from volary.train.votes import Agreed


class Strategy(Protocol):
    """Lets gradients leave as they become ready, applies what all ranks agree on, and says what that was.

    sent_bytes and received_bytes: what this worker put on and took off the wire since it started.
    """

    @property
    def sent_bytes(self) -> int:
        """Since the start."""
        ...

    @property
    def received_bytes(self) -> int:
        """Since the start."""
        ...

    def start(self, late: Late) -> None:
        """Give all ranks rank 0's parameters, then what is `late`; before the first step. A collective call.

        It may still be under way when this returns: whoever reads a parameter waits for it.
        """
        ...

    def vote(self, loss: float, *, busy: bool, ending: bool) -> None:
        """Say what all ranks must agree on, before the step's last backward pass.

        loss: this rank's share of the global batch's mean loss. busy: this rank has samples in this step. ending: it
        was asked to end after this step. Raises PeerLost.
        """
        ...

    def agree(self) -> Agreed:
        """Backward is over: what all ranks agree on. Raises PeerLost."""
        ...

    def apply(self) -> None:
        """Let the step's update happen, now or as its sums arrive."""
        ...

    def leave_out(self) -> None:
        """Let the step pass without an update."""
        ...

    def settle(self) -> None:
        """Wait until every parameter is what was agreed: before anything but training reads them. Raises PeerLost."""
        ...

    def close(self) -> None:
        """Let go of the network."""
        ...


def build_strategy(
    settings: Settings,
    module: nn.Module,
    recorder: Recorder,
    bulletin: Bulletin,
    update: Update | None,
    *,
    passes: int = 1,
    weight: Callable[[], float] = lambda: 1.0,
) -> Strategy:
    """The strategy of a session for `module`. A collective call. Raises RanksDiffer, SettingError.

    update: applies agreed gradients; None where a user's own loop does, after `agree`. passes: backward passes a step
    (gradient accumulation). weight: the factor of this rank's gradients, if its loss is not yet its share of the global
    batch's mean. A world of one worker exchanges nothing.
    """
    if bulletin.world_size == 1:
        return Alone(recorder, update)
    private = update is None or update.changes_gradients
    contribution = Contribution(settings, module, recorder, bulletin, private=private, passes=passes, weight=weight)
    whole = "the loop is your own" if update is None else contribution.why_at_once or update.why_whole
    if bulletin.rank == 0:
        how = f"all at once, since {whole}" if whole else "chunk by chunk, as sums arrive"
        recorder.note(route=contribution.exchange.route, update=how)
        recorder.event("exchange", route=contribution.exchange.route, update=how)
    if whole or update is None:
        return AtOnce(contribution, module, recorder, update)
    return Overlapping(contribution, module, recorder, bulletin, update)
