"""The feed that `worker.feed` returns: the batches of a user's own data, of which a worker has its share."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Protocol

from volary.errors import SettingError


class FeedPosition(Protocol):
    """The position of a loop in its data, and the batches that come next, as workers in step or a roster have it.

    loader: the user's, or as the user would make it. steps: of an epoch of all workers; None if nobody knows.
    """

    loader: Any
    steps: int | None

    def batches(self) -> Iterator[Any]:
        """This worker's batches of the next `for`. Raises what reading raises, and Stopped when the run ends."""
        ...

    def left_out(self, loops: int) -> int:
        """Epochs of `worker.epochs` to leave out after one with so many `for`: others had them without this worker."""
        ...

    def state(self, *, within: bool) -> dict[str, Any]:
        """The position, in plain values. within: the run is resumed among the batches of this epoch."""
        ...

    def resume(self, state: Mapping[str, Any], generators: Any, workers: int) -> None:
        """Continue where `state` was taken. generators, workers: as they were then. Raises BadInput if it cannot."""
        ...


class LoopFeed:
    """Batches as the loader's collate_fn makes them, on the worker's device; `len` is the number of steps of an epoch.

    Each `for` over it is an epoch; over servers it is what this worker learns from of one, and after a `break` the next
    `for` continues there. What else one asks of it (`dataset`, `batch_size`, `sampler`, ...) the loader has.
    """

    def __init__(self, position: FeedPosition) -> None:
        self._position = position
        self.under_way = False  # whether a `for` over it has begun and not ended
        self._loops = 0  # over it that have ended in this epoch of `worker.epochs`
        self._ended_before = 0  # of these, in an earlier attempt of the run

    def __len__(self) -> int:
        if self._position.steps is None:
            raise SettingError("the data is a stream without a length")
        return self._position.steps

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # a copy of it is asked before it has anything
            raise AttributeError(name)
        return getattr(self._position.loader, name)

    def __iter__(self) -> Iterator[Any]:
        if self._ended_before:
            self._ended_before -= 1
            return
        self.under_way = True
        try:
            yield from self._position.batches()
        finally:
            self.under_way = False
            self._loops += 1

    def is_at(self, position: FeedPosition) -> bool:
        """Whether this is its position."""
        return position is self._position

    def begin_epoch(self) -> int:
        """The next epoch of `worker.epochs` begins; how many are left out before it."""
        loops, self._loops, self._ended_before = self._loops, 0, 0
        return self._position.left_out(loops)

    def state(self, *, within: bool) -> dict[str, Any]:
        """The feed's place, in plain values. within: the run is resumed among the batches of this epoch."""
        return {**self._position.state(within=within), "loops": self._loops if within else 0}

    def resume(self, state: Mapping[str, Any], generators: Any, workers: int) -> None:
        """Continue where `state` was taken. generators, workers: as they were then. Raises BadInput if it cannot."""
        known = dict(state)
        self._loops = self._ended_before = known.pop("loops", 0)  # not in checkpoints of earlier versions
        self._position.resume(known, generators, workers)
