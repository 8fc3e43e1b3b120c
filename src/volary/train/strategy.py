"""Puts the four axes together: how replicas stay one model."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from volary.errors import SettingError
from volary.train.adapting import Adapting
from volary.train.alone import Alone
from volary.train.at_once import AtOnce
from volary.train.choosing import Chooser
from volary.train.contribution import Contribution, Terms
from volary.train.overlapping import Overlapping

if TYPE_CHECKING:
    from torch import nn

    from volary.session.spec import Strategy as Settings
    from volary.train.bulletin import Bulletin
    from volary.train.carried import Carried
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

    def vote(self, loss: float, *, busy: bool, ending: bool, lost: int = 0) -> None:
        """Say what all ranks must agree on, before the step's last backward pass.

        loss: this rank's share of the global batch's mean loss. busy: this rank has samples in this step. ending: it
        was asked to end after this step. lost: samples of its share that could not be read. Raises PeerLost.
        """
        ...

    def agree(self) -> Agreed:
        """Backward is over: what all ranks agree on. Raises PeerLost."""
        ...

    def apply(self, scale: float = 1.0) -> None:
        """Let the step's update happen, now or as its sums arrive. scale: a factor of all gradients."""
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
    carried: Carried,
    samples: Callable[[], int] | None = None,
    on_nonfinite: str = "stop",
    passes: int = 1,
    weight: Callable[[], float] = lambda: 1.0,
) -> Strategy:
    """The strategy of a session for `module`. A collective call. Raises RanksDiffer, SettingError.

    update: applies agreed gradients; None where a user's own loop does, after `agree`. carried: what a checkpoint
    brings and takes. samples: how many the run has seen; None where nobody knows. on_nonfinite: what becomes of
    gradients that no codec can encode. passes: backward passes a step (gradient accumulation). weight: the factor of
    this rank's gradients, if its loss is not yet its share of the global batch's mean. A world of one worker exchanges
    nothing.
    """
    if bulletin.world_size == 1:
        return Alone(recorder, update)
    adapts = settings.exchange.decides or settings.codec.at(0) != settings.codec
    if samples is None and settings.codec.at(0) != settings.codec:
        raise SettingError("codec: a warm-up counts samples, which a loop of your own does not tell; accepted: none")
    private = update is None or update.changes_gradients
    ground = settings.exchange.ground(bulletin)
    terms = Terms(settings, module, recorder, ground, carried, on_nonfinite, private, passes, weight)
    chooser = Chooser(terms, bulletin, samples or (lambda: 0))
    numbers = itertools.count()

    def make() -> Overlapping | AtOnce:
        own = bulletin.within(f"plan {next(numbers)}")
        return _of(Contribution(terms, chooser.ways(), own), terms, own, update)

    return Adapting(chooser, make, own_loop=update is None) if adapts else make()


def _of(contribution: Contribution, terms: Terms, bulletin: Bulletin, update: Update | None) -> Overlapping | AtOnce:
    """What waits no longer than it must."""
    recorder, module = terms.recorder, terms.module
    whole = "the loop is your own" if update is None else contribution.why_at_once or update.why_whole
    if whole and contribution.exchange.behind:
        raise SettingError(f"exchange.behind applies chunks as they come, but {whole}; accepted: behind=false")
    if bulletin.rank == 0:
        how = f"together, since {whole}" if whole else "chunk by chunk, as sums arrive"
        recorder.note(route=contribution.exchange.route, update=how)
        recorder.event("exchange", route=contribution.exchange.route, update=how)
    if whole or update is None:
        return AtOnce(contribution, module, recorder, update)
    return Overlapping(contribution, module, recorder, bulletin, update)
