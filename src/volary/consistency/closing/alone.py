"""Makes an update of each contribution alone."""

from __future__ import annotations

from collections.abc import Sequence

from volary.server.protocol.updates import Contribution
from volary.server.roster.closing import DueUpdate


class ImmediateCloser:
    """Every contribution is an update of its own once it is held; a `volary.server.roster.closing.Closer`.

    first: the first clock of every worker. warm_up_samples: until so many are learnt from, one worker learns alone.
    """

    def __init__(self, first: int, warm_up_samples: int = 0) -> None:
        self._first, self._warm_up_samples = first, warm_up_samples
        self._here: set[int] = set()
        self._next: dict[int, int] = {}
        self._learner = -1  # who learns alone, until it has gone
        self._not_finite: set[Contribution] = set()

    def joined(self, worker: int, now: float) -> None:
        """Let the worker begin when it likes; in a warm-up, once that is over."""
        self._here.add(worker)

    def left(self, worker: int, now: float) -> Sequence[DueUpdate]:
        """Forget the worker, for which nobody waits."""
        self._here.discard(worker)
        self._not_finite = {each for each in self._not_finite if each.worker != worker}
        return ()

    def next_clock(self, worker: int, now: float) -> int | None:
        if self._warm_up_samples > 0:
            if self._learner not in self._here:
                self._learner = min(self._here)
            if worker != self._learner:
                return None
        clock = self._next.get(worker, self._first)
        self._next[worker] = clock + 1
        return clock

    @property
    def held_by(self) -> int | None:
        """None after a warm-up: nobody waits for a clock."""
        return None if self._warm_up_samples > 0 else 0

    def oldest(self, clock: int) -> int:
        """Parameters of any age may be read."""
        return 0

    def computed(self, contribution: Contribution, samples: int, finite: bool, now: float) -> Sequence[DueUpdate]:
        """Close nothing: the contribution is not an update yet."""
        if not finite:
            self._not_finite.add(contribution)
        return ()

    def done(self, contribution: Contribution, samples: int, now: float) -> Sequence[DueUpdate]:
        """Make an update of the contribution, unless it has nothing to add."""
        self._warm_up_samples -= samples
        if samples and contribution not in self._not_finite:
            return (DueUpdate((contribution,), whole=False),)
        self._not_finite.discard(contribution)
        return (DueUpdate((), left_out=(contribution,), whole=False),)

    def tick(self, now: float) -> Sequence[DueUpdate]:
        """Close nothing, as time alone does not."""
        return ()
