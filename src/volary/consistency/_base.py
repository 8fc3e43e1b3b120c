"""The protocol of consistency models: which contributions make an update, and when workers push and pull."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from volary.server.roster.closing import Closer


class Push(Enum):
    """The kinds of contributions that a worker sends at the end of a step."""

    NOTHING = "nothing"
    GRADIENT = "gradient"  # of all steps since the last push
    DIFFERENCE = "difference"  # of this worker's parameters to those that it read after the last push, or a part of it
    PARAMETERS = "parameters"  # this worker's own, which become the mean of its own and its partners'


@dataclass(frozen=True)
class Action:
    """A worker's action in a step. updates: its own optimiser updates its own parameters. push: what it sends then."""

    updates: bool = False
    push: Push = Push.GRADIENT


@dataclass(frozen=True, kw_only=True)
class Consistency:
    """A model's settings, and what the roster and the workers need to know of it. All defaults are those of `bsp`."""

    @property
    def threads(self) -> int:
        """How many threads of a worker update its copy of the parameters, none of which waits for another."""
        return 1

    def among(self, workers: int) -> Consistency:
        """The model's rules for so many workers: one without threads has nobody to wait for."""
        return self if workers > 1 or self.threads > 1 else Consistency()

    @property
    def needs_server(self) -> bool:
        """Whether replicas may differ, so that a parameter server must keep what is agreed."""
        return False

    @property
    def elastic(self) -> bool:
        """Whether workers may leave and join while the run continues."""
        return False

    @property
    def drops(self) -> bool:
        """Whether an update may close without a contribution that has begun, which is then in none."""
        return False

    @property
    def steals(self) -> bool:
        """Whether a worker that has nothing left to do takes a portion that another has not begun."""
        return False

    @property
    def epoch_share(self) -> float | None:
        """The share of workers that ends an epoch once they have finished their own part of it, in (0, 1].

        None: there are no own parts, and the next epoch begins as soon as a worker has nothing left to do.
        """
        return None

    @property
    def copies(self) -> bool:
        """Whether portions that take unusually long are handed out twice; the first answer counts."""
        return False

    def pieces(self, workers: int) -> int | None:
        """In how many portions a batch is cut that so many workers take when they are free; None: each has a share."""
        return None

    @property
    def whole_batches(self) -> bool:
        """Whether an update is of each sample of a batch once, all with the same parameters."""
        return self.has_common_step and not self.drops and self.pushes is Push.GRADIENT

    def at(self, number: int, step_s: float, begun: int = 0) -> Action:
        """Say what a worker does in a step, the same on all workers that keep step.

        number: of the steps since the last push, from 0. step_s: seconds that a step takes, the mean of all workers; 0:
        nobody knows yet. begun: steps of the run up to the last push.
        """
        return Action()

    def partners(self, step: int, worker: int, workers: int) -> Sequence[int]:
        """The workers from which a worker receives: to as many it sends, so that means preserve that of all workers.

        Gradients and differences go to everybody, as here. step: that the contribution begins with.
        """
        return [other for other in range(workers) if other != worker]

    def steps(self, step_s: float = 0.0, begun: int = 0) -> int:
        """Steps of a contribution: those up to the first in which something is pushed, as it would be in later ones."""

        def pushes_in(step: int) -> bool:
            return self.at(step - 1, step_s, begun).push is not Push.NOTHING

        before, found = 0, 1
        while not pushes_in(found):
            before, found = found, 2 * found
        while found - before > 1:  # a period may be longer than anybody can count to
            middle = (before + found) // 2
            before, found = (before, middle) if pushes_in(middle) else (middle, found)
        return found

    @property
    def pushes(self) -> Push:
        """The kind of contribution that workers push."""
        return self.at(self.steps() - 1, 0.0).push

    @property
    def has_common_step(self) -> bool:
        """Whether an update is of one step of all who take part, so that its gradient is that of a batch."""
        return True

    @property
    def deciding(self) -> str:
        """The setting for which the model needs something that it does not need without it; empty: there is none."""
        return ""

    @property
    def fragments(self) -> int:
        """In how many fragments, one after the other, differences leave."""
        return 1

    @property
    def eager(self) -> bool:
        """Whether a worker's own changes of a fragment count before those of others are here."""
        return False

    @property
    def outer(self) -> Any:
        """The optimiser, as a session names one, of what differences add up to; None: they are added as they are."""
        return None

    def pull(self, workers: int) -> float | None:
        """The part of its distance to the one model by which each of so many workers pulls that, and is pulled.

        None: they take it over.
        """
        return None

    @property
    def equal(self) -> bool:
        """Whether all workers have the same parameters once a contribution counts."""
        return self.pushes is not Push.PARAMETERS

    @property
    def fetch_every(self) -> int:
        """How many contributions a worker computes with the same parameters."""
        return 1

    @property
    def asks_ahead(self) -> bool:
        """Whether a worker asks for parameters when backward begins, too: it reads whatever is there."""
        return False

    @property
    def in_turn(self) -> bool:
        """Whether a worker is given a contribution once the one before is done: only then it asks for parameters."""
        return False

    def closer(self, workers: int, first: int = 0, samples: int = 0) -> Closer:
        """Make the rule of which contributions make an update, and when, for so many workers: here all of a step.

        first: the clock that the run begins with. samples: how many were learnt from before. Raises SettingError if a
        setting does not fit the number of workers.
        """
        from volary.consistency.closing.with_all import (
            SynchronousCloser,  # reading a session needs no more than the settings
        )

        return SynchronousCloser(first, early=True)
