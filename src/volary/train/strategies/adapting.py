"""A strategy whose representations change between steps: after a warm-up, as tables are compared, or links change."""

from __future__ import annotations

import gc
from collections.abc import Callable, Container
from typing import TYPE_CHECKING

from volary.run.database.traffic import Traffic, added
from volary.train.agreement.first_state import DeferredTensors
from volary.train.replica import Voting
from volary.train.strategies.after_backward import AfterBackward

if TYPE_CHECKING:
    from typing import TypeAlias

    from torch import Tensor

    from volary.exchange.choice.rows import StepEstimate
    from volary.train.agreement.votes import Agreed, Vote
    from volary.train.coordinator import LearnTask
    from volary.train.strategies.averaging.local_steps import LocalSteps
    from volary.train.strategies.choosing import Chooser
    from volary.train.strategies.overlapping import Overlapping

    Plain: TypeAlias = AfterBackward | LocalSteps | Overlapping


class Adapting(Voting):
    """See `volary.train.replica.Voting`. make: a strategy with the representations that `chooser` names, collective.

    own_loop: where all gradients are waited for nobody calls `apply`: a step is over when it was agreed on.
    """

    def __init__(
        self, chooser: Chooser, make: Callable[[], Overlapping | AfterBackward | LocalSteps], *, own_loop: bool
    ) -> None:
        self._chooser, self._make, self._own_loop = chooser, make, own_loop
        self._began_with = chooser.representations()
        self._now = make()
        self._left_behind = False  # whether the memory of those before may still be held
        self._traffic: tuple[Traffic, ...] = ()  # of those before

    @property
    def traffic(self) -> tuple[Traffic, ...]:
        return added(self._traffic, self._now.traffic)

    def start(self, late: DeferredTensors) -> None:
        """Start with the representations of a checkpoint; without one, but in an own loop, with those chosen now."""
        if not self._own_loop:
            self._chooser.choose_first()
        if self._chooser.representations() != self._began_with:
            self._replace()
        self._now.start(late)

    def choose(self, estimate: StepEstimate) -> None:
        """Choose representations by `estimate`, in a loop whose first step is known now. A collective call."""
        self._now.settle()
        before = self._chooser.representations()
        self._chooser.choose_first(estimate)
        if self._chooser.representations() != before:
            self._restart()

    def begin(self, task: LearnTask) -> None:
        self._now.begin(task)

    def update(self) -> None:
        self._now.update()

    def vote(self, vote: Vote) -> None:
        if self._left_behind and self._chooser.settled:
            self._left_behind = False
            gc.collect()  # references go in circles; the newest loss no longer leads to any of them
        self._now.vote(vote)

    def agree(self) -> Agreed:
        agreed = self._now.agree()
        if self._own_loop and isinstance(self._now, AfterBackward):
            self._adapt()
        return agreed

    def drop(self, cleared: Container[int]) -> None:
        self._now.drop(cleared)

    def apply(self, scale: float = 1.0) -> None:
        """Let the step's update happen, and see whether representations change."""
        self._now.apply(scale)
        self._adapt()

    def gradient_norm(self, kind: float) -> Tensor:
        return self._now.gradient_norm(kind)

    def leave_out(self) -> None:
        """Let the step pass, and see whether representations change."""
        self._now.leave_out()
        self._adapt()

    def forget(self) -> None:
        self._now.forget()

    def expect(self) -> None:
        self._now.expect()

    def await_all(self) -> None:
        self._now.await_all()

    def gathers_anew(self) -> bool:
        return self._now.gathers_anew()

    def settle(self) -> None:
        """Wait until every parameter is what was agreed."""
        self._now.settle()

    def finish(self) -> None:
        self._chooser.finish()

    def close(self) -> None:
        self._now.close()
        self._chooser.close()

    def _adapt(self) -> None:
        if self._chooser.changed(self._now.contribution.sent_bytes_per_s):
            self._now.settle()
            self._restart()

    def _restart(self) -> None:
        self._replace()
        self._now.start(DeferredTensors(new=False))

    def _replace(self) -> None:
        self._traffic = self.traffic
        self._now.close()
        self._now, self._left_behind = self._make(), True
