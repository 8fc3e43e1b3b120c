"""The protocol of data that workers share, and the workers that share it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from volary.data.batching.no_samples import without_rows
from volary.data.datasets.stream_shards import ValueExchange
from volary.errors import DataError
from volary.sharding.samples import SampleShare

Batches = list[list[Any]]  # the indices of an epoch, or of a portion of one
_AS_GIVEN = (
    *("num_workers", "pin_memory", "timeout", "worker_init_fn", "multiprocessing_context", "generator"),
    *("prefetch_factor", "persistent_workers", "in_order"),
)


class BatchShare(NamedTuple):
    """A worker's part of a step. samples: how many of its own; total: of all workers.

    foreign: it has no samples, and `batch` has another's, as it is of a kind that cannot be without.
    """

    batch: Any
    samples: int
    total: int
    ends_epoch: bool
    foreign: bool = False

    @classmethod
    def none(cls, batch: Any, rows: int, total: int, ends_epoch: bool) -> BatchShare:
        """The share of a worker without samples. batch: of `rows` of others' samples."""
        left, cut = without_rows(batch, rows)
        return cls(left, 0, total, ends_epoch, foreign=not cut)


@dataclass(frozen=True)
class Among:
    """The workers that share. own: what this one has of each batch.

    alike: gives every worker rank 0's batches; None: there is one worker. pairs: nobody is to have a single sample.
    exchange: in which they tell each other what shards of a stream have; None: there is one worker.
    """

    own: SampleShare
    alike: Callable[[Batches], Batches] | None = None
    pairs: Callable[[], bool] = lambda: True
    exchange: ValueExchange | None = None

    def share(self, total: int, whole: int) -> slice:
        """This worker's, of a batch of so many samples. whole: those of a full batch."""
        single = total < 2 * self.own.count  # somebody may get one
        return self.own.of(total, whole if single and self.pairs() else 0)


STAND_IN = 2  # times a sample is in a batch whose rows are left out


def stand_in(samples: list[Any]) -> list[Any]:
    """Samples to make a batch without rows of: its parts are as those of any other."""
    return samples[:1] * STAND_IN


class SharedData(Protocol):
    """Data that is shared out. steps: of an epoch; None if nobody knows. loader: the user's, or as the user would."""

    steps: int | None
    loader: Any

    def epoch(self, number: int, skip: int = 0, ready: Callable[[], None] = lambda: None) -> Iterator[BatchShare]:
        """This worker's part of each step of an epoch, without the first `skip` of them; all workers have as many.

        ready: called before the first one is read, once what comes before is drawn.
        """
        ...


def kept(loader: Any) -> dict[str, Any]:
    """The settings that a worker's loader takes from the user's, whatever it reads."""
    return {name: getattr(loader, name) for name in _AS_GIVEN}


def begin_epoch(number: int, *parts: Any) -> None:
    """Say so to all that want to know."""
    for part in parts:
        if hasattr(part, "set_epoch"):
            part.set_epoch(number)


def after(parts: Iterator[BatchShare], skip: int, ready: Callable[[], None]) -> Iterator[BatchShare]:
    """Parts without the first `skip`, which are read and dropped; then `ready` is called."""
    for _ in range(skip):
        next(parts, None)
    ready()
    yield from parts


def with_last(items: Iterable[Any], number: int) -> Iterator[tuple[Any, bool]]:
    """Yield each batch and whether it is the last: read one ahead, as a stream says it no earlier. Raises DataError."""
    coming, nothing = iter(items), object()
    item = next(coming, nothing)
    if item is nothing:
        hint = "at least one sample" if number == 0 else "an iterable that starts anew with every iter()"
        raise DataError(f"worker.feed found no sample in epoch {number}; accepted: {hint}")
    while item is not nothing:
        after = next(coming, nothing)
        yield item, after is nothing
        item = after
