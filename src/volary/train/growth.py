"""The size of the next batches: tried out on the samples that come next, from the state that training is in."""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Iterator
from copy import copy
from typing import TYPE_CHECKING, Any

from volary.data.feed import even

if TYPE_CHECKING:
    from volary.data.batching.batch import Batch
    from volary.data.feed import Feed
    from volary.train.agreement.votes import Agreed
    from volary.train.recording.recorder import Recorder

RUNGS_TO_DOUBLE = 2  # sizes grow by sqrt(2) from one to the next, as CNTK's


class Growth:
    """Searches the size after every `period_steps` steps of the feed, as CNTK's SearchForBestMinibatchSize does.

    From half the size at hand to twice of it, never below the first and never above `most`, each is trained with for
    the next `trial_samples` samples; then all is as before. The first whose mean loss exceeds the smallest's by more
    than `margin`, a share of it, ends the search, and the one before it is taken. All ranks see the same losses.
    Unlike CNTK's, a loss that is not finite exceeds everything, and the first search does not more than double either.
    """

    def __init__(
        self, feed: Feed, recorder: Recorder, *, period_steps: int, trial_samples: int, margin: float, most: int
    ) -> None:
        self._feed, self._recorder = feed, recorder
        self._period_steps, self._trial_samples, self._margin, self._most = period_steps, trial_samples, margin, most
        self._rung = 0
        self._due_at = period_steps

    @property
    def due(self) -> bool:
        """Whether it is time to search, before the next batch."""
        return self._feed.step >= self._due_at

    def search(self, agreed: Callable[[], Agreed], restore: Callable[[], None]) -> Iterator[Batch]:
        """Choose the size of the next batches: gives those to train with meanwhile. It stays due if it is ended early.

        agreed: on the batch that was given last; if somebody asked to end, nothing is chosen. restore: makes
        everything as it is now. The feed itself stays where it is, and with it schedules and the warm-up of codecs.
        """
        self._feed.begun = self._feed.step
        was, chosen, losses = self._rung, self._rung, dict[str, float]()
        for rung in self._rungs():
            loss = yield from self._mean_loss(self._size(rung), agreed)
            restore()
            if loss is None:
                self._take(was)
                return
            losses[str(self._size(rung))] = loss
            if not self._is_as_good(loss, next(iter(losses.values()))):
                break
            chosen = rung
        self._take(chosen)
        self._due_at = (self._feed.step // self._period_steps + 1) * self._period_steps
        self._tell(self._size(was), losses)

    def state(self) -> dict[str, Any]:
        """The plain values of it that a checkpoint keeps."""
        return {"rung": self._rung, "due_at": self._due_at}

    def restore(self, state: Any) -> None:
        """Go on from a checkpoint's state."""
        self._due_at = state["due_at"]
        self._take(state["rung"])

    def _size(self, rung: int) -> int:
        return round(self._feed.batch_size * 2 ** (rung / RUNGS_TO_DOUBLE))

    def _rungs(self) -> Iterator[int]:
        for rung in range(max(0, self._rung - RUNGS_TO_DOUBLE), self._rung + RUNGS_TO_DOUBLE + 1):
            if self._size(rung) <= self._most:
                yield rung

    def _mean_loss(self, size: int, agreed: Callable[[], Agreed]) -> Generator[Batch, None, float | None]:
        """The training loss with batches of that size; None if somebody asked to end."""
        self._feed.size = size
        ahead = copy(self._feed)
        left, loss = self._trial_samples, 0.0
        while left > 0:
            batch = ahead.read(even(size, left))
            yield batch
            if agreed().ending:
                return None
            loss += agreed().loss * batch.total
            left -= batch.total
        return loss / self._trial_samples

    def _is_as_good(self, loss: float, smallest: float) -> bool:
        return math.isfinite(loss) and loss <= smallest + self._margin * abs(smallest)

    def _take(self, rung: int) -> None:
        self._rung, self._feed.size = rung, self._size(rung)

    def _tell(self, was: int, losses: dict[str, float]) -> None:
        if self._recorder.leads:
            size, planned = self._feed.size, self._recorder.step + self._feed.batches_ahead
            self._recorder.event("batch_size", size=size, was=was, losses=losses)
            self._recorder.note(batch_size=size, steps_planned=planned)
