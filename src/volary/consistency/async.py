"""Asynchronous updates (Downpour SGD: Dean et al., NIPS 2012): nobody waits for anybody."""  # noqa: N999

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from volary.consistency._base import Action, Consistency, Push
from volary.consistency.closing.alone import ImmediateCloser
from volary.errors import SettingError

if TYPE_CHECKING:
    from volary.server.roster.closing import Closer


@dataclass(frozen=True, kw_only=True)
class Async(Consistency):
    """Each contribution is an update of its own; workers push and fetch at intervals of their own."""

    push_every: int = 1  # portions of a batch whose gradients are pushed as one
    fetch_every: int = 1  # contributions that are computed with the same parameters
    warm_up_samples: int = 0  # samples that one worker learns from alone before the others begin
    needs_server = True
    elastic = True
    steals = True
    has_common_step = False

    def __post_init__(self) -> None:
        for name, least in (("push_every", 1), ("fetch_every", 1), ("warm_up_samples", 0)):
            if getattr(self, name) < least:
                raise SettingError(f"{name} is {getattr(self, name)}; accepted: a whole number, {least} or more")

    @property
    def asks_ahead(self) -> bool:
        """The next read is of whatever is there, unless it comes between two fetches."""
        return self.fetch_every == 1

    def at(self, number: int, step_s: float, begun: int = 0) -> Action:
        """Gradients of so many portions leave as one."""
        return Action(push=Push.NOTHING if number + 1 < self.push_every else Push.GRADIENT)

    def closer(self, workers: int, first: int = 0, samples: int = 0) -> Closer:
        """Make a rule by which each contribution is an update once it is held."""
        return ImmediateCloser(first, self.warm_up_samples - samples)


CONSISTENCY = Async
