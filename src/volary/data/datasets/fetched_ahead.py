"""Batches of a data set of the user's, which one thread fetches ahead of training, one sample after the other.

Samples are asked for in their order, one after the other, as a plain loop would do. What fails in the thread is fetched
again where its batch is taken, which raises what there is to raise. Nothing is fetched ahead of a data set that draws
from the global random generators: training draws from them as well, and which of both came first would be chance. Nor
is it where a batch takes next to no time: the thread would take more from training than that.
"""

from __future__ import annotations

import logging
import random
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from volary.data.loading.threads import Threads
from volary.errors import DataError

AHEAD = 3  # batches, with the one that is taken next
WORTH_S = 2e-3  # that the first batch takes, at least
STUCK_S = 300.0  # without a single sample of a batch
_PIECE = 8  # samples, at whose end the thread can be ended with the process
_LOG = logging.getLogger("volary.data")


@dataclass(eq=False)
class _Batch:
    """samples: those that were fetched so far, in the order of numbers. failed: why there will be no more."""

    numbers: list[int]
    samples: list[Any] = field(default_factory=list)
    failed: str = ""
    wanted: bool = True
    ended: threading.Event = field(default_factory=threading.Event)


class FetchedAhead:
    """fetch: a sample by its number, in any thread. collate: samples, and their numbers, to a batch.

    name: of the data set, for messages.
    """

    def __init__(
        self,
        fetch: Callable[[int], Any],
        collate: Callable[[Sequence[Any], Sequence[int]], tuple[Tensor, Tensor]],
        name: str,
    ) -> None:
        self._fetch, self._collate, self._name = fetch, collate, name
        self._allowed: bool | None = None  # None: there was no batch yet from which it could be told
        self._ahead: deque[_Batch] = deque()
        self._missed = 0
        self._threads = Threads(1, "fetch")

    def prefetch(self, numbers: list[int]) -> bool:
        """Begin to fetch a batch, unless enough of them are on their way, or none may be."""
        if not self._allowed or len(self._ahead) >= AHEAD:
            return False
        batch = _Batch(numbers)
        self._ahead.append(batch)
        self._threads.submit([partial(self._fetch_some, batch)] * -(-len(numbers) // _PIECE))
        return True

    def take(self, numbers: list[int]) -> tuple[Tensor, Tensor]:
        """The batch of these samples. Raises what the data set raises, and DataError if it gives nothing for long."""
        batch = self._found(numbers)
        if batch is None:
            samples = self._fetch_here(numbers)
        else:
            self._wait(batch)
            samples = batch.samples if not batch.failed else self._fetch_again(batch)
        return self._collate(samples, numbers)

    def _found(self, numbers: list[int]) -> _Batch | None:
        """The batch, if it is fetched ahead. Those before it are not wanted any more."""
        if not any(batch.numbers == numbers for batch in self._ahead):
            # more often in a row than there are batches ahead: nobody will ask for these
            self._missed += 1
            while self._ahead and self._missed > AHEAD:
                self._ahead.popleft().wanted = False
            return None
        self._missed = 0
        while (batch := self._ahead.popleft()).numbers != numbers:
            batch.wanted = False
        return batch

    def _fetch_here(self, numbers: list[int]) -> list[Any]:
        if self._allowed is not None:
            return [self._fetch(number) for number in numbers]
        before, begun_s = _generators(), time.perf_counter()
        samples = [self._fetch(number) for number in numbers]
        takes_s = time.perf_counter() - begun_s
        draws = before != _generators()
        self._allowed = takes_s >= WORTH_S and not draws
        if draws:
            _LOG.info("%s: draws from the global random generators: no sample is fetched ahead", self._name)
        return samples

    def _fetch_again(self, batch: _Batch) -> list[Any]:
        samples = self._fetch_here(batch.numbers)
        if self._allowed:
            why = "failed in a thread (%s) and not in the main thread: no sample is fetched ahead any more"
            _LOG.warning(f"%s: {why}", self._name, batch.failed)
        self._allowed = False
        return samples

    def _fetch_some(self, batch: _Batch) -> None:
        for number in batch.numbers[len(batch.samples) :][:_PIECE]:
            if not batch.wanted or batch.failed:
                break
            try:
                batch.samples.append(self._fetch(number))
            except BaseException as problem:  # is raised again where the batch is taken, if it is
                batch.failed = f"{type(problem).__name__}: {problem}"
        if batch.failed or len(batch.samples) == len(batch.numbers):
            batch.ended.set()

    def _wait(self, batch: _Batch) -> None:
        before = len(batch.samples)
        while not batch.ended.wait(STUCK_S):
            if len(batch.samples) == before:
                raise DataError(f"{self._name}: sample {batch.numbers[before]} has not been fetched for {STUCK_S:g} s")
            before = len(batch.samples)


def _generators() -> tuple[bytes, ...]:
    """The state of all global generators on the CPU."""
    _, keys, place, *rest = np.random.get_state(legacy=True)
    return (
        torch.get_rng_state().numpy().tobytes(),
        np.asarray(keys).tobytes() + repr((place, rest)).encode(),
        repr(random.getstate()).encode(),
    )
