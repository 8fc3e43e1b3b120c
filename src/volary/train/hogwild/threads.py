"""Hands out the batches of a contribution to threads, each of which takes the next one when it is free."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from queue import SimpleQueue
from typing import TYPE_CHECKING

import torch

from volary.errors import SettingError
from volary.train.hogwild.thread_copy import FirstUpdates, ThreadCopy

if TYPE_CHECKING:
    from torch import Tensor

    from volary.network.flow import Flow
    from volary.train.coordinator import MicroBatch
    from volary.train.update.precision import Precision
    from volary.train.update.update import Update

AHEAD = 2  # batches for each thread that are read before the oldest is learnt from


class LockFreeThreads:
    """Runs `threads` threads of a worker; see `ThreadCopy` for the rest. `learn` is of one contribution."""

    def __init__(
        self, threads: int, flow: Flow, update: Update, precision: Precision, look: Callable[[Tensor, int], None]
    ) -> None:
        first, self._update = FirstUpdates(), update
        self._copies = [ThreadCopy(flow, update, precision, first, look) for _ in range(threads)]

    def learn(
        self,
        parts: Iterator[MicroBatch],
        prepare: Callable[[], None],
        computed: Callable[[MicroBatch, float], bool],
        enter: Callable[[str], None],
    ) -> None:
        """Learn from `parts`, as long as they are wanted, and return once all threads have ended.

        prepare: called before each update, and sets its rate. computed: told each part's loss, in their order; whether
        more is wanted. enter: told the phase that this thread is in. Raises SettingError for a network whose copies
        do not share what they change, TargetError, and what the user's code raises.
        """
        free, wanted, cores = SimpleQueue[ThreadCopy](), True, torch.get_num_threads()
        for one in self._copies:
            one.begin()
            free.put(one)

        def work(batch: list[MicroBatch], factor: float) -> list[float]:
            copy = free.get_nowait()  # there are as many as threads
            try:
                return copy.learn(batch, factor)
            finally:
                free.put(copy)

        def reported(batch: list[MicroBatch], losses: Future[list[float]]) -> bool:
            enter("forward")
            return all(computed(part, loss) for part, loss in zip(batch, losses.result(), strict=False))

        threads = len(self._copies)
        pool = ThreadPoolExecutor(threads, "hogwild", torch.set_num_threads, (max(1, cores // threads),))
        under_way: deque[tuple[list[MicroBatch], Future[list[float]]]] = deque()
        try:
            for batch in _by_batch(parts):
                prepare()
                under_way.append((batch, pool.submit(work, batch, self._update.factor)))
                wanted = len(under_way) <= AHEAD * threads or reported(*under_way.popleft())
                if not wanted:
                    break
            while wanted and under_way:
                wanted = reported(*under_way.popleft())
        finally:
            pool.shutdown(cancel_futures=True)
            torch.set_num_threads(cores)  # the last that set it has set it for all threads to come
        self._check()

    def _check(self) -> None:
        try:
            for one in self._copies:
                one.check()
        except SettingError as error:
            threads = len(self._copies)
            raise SettingError(
                f"strategy.consistency.threads is {threads}, and {error}, which threads cannot share; accepted: 1"
            ) from None


def _by_batch(parts: Iterable[MicroBatch]) -> Iterator[list[MicroBatch]]:
    batch: list[MicroBatch] = []
    for part in parts:
        batch.append(part)
        if part.updates:
            yield batch
            batch = []
        if part.last:  # the end of `parts` is for those who have learnt from all of them
            return
