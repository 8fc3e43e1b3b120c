"""Batches that are being made, in the order in which they will be fetched: memory, and what became of each sample."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from numpy.typing import DTypeLike

from volary.data.decoding.decoder import Array


@dataclass(eq=False)
class Made:
    """A batch. out (n, ...): row i is sample indices[i], unless problems has an i. left: rows that are not done."""

    indices: list[int]
    epoch: int
    out: Array
    left: int
    problems: dict[int, Exception] = field(default_factory=dict)
    wanted: bool = True  # nobody will fetch it otherwise
    lent: bool = False  # whoever fetched it has the memory
    slot: int = -1  # of memory that processes share; -1: ordinary memory, or none yet
    begun: bool = True  # else it waits for the memory of an earlier one, and has no rows in `out`
    readers: int = 0  # that there were when it began
    elsewhere: int = 0  # rows of which processes have not yet said that they are done
    changed: threading.Condition = field(default_factory=threading.Condition)

    def finish(self, rows: int) -> None:
        """Count `rows` more of a batch as done."""
        with self.changed:
            self.left -= rows
            if not self.left:
                self.changed.notify_all()

    def wait(self, at_most_s: float) -> bool:
        """Wait until another row is done, or all are. False: nothing happened for so long."""
        with self.changed:
            return self.changed.wait_for(lambda: not self.left, at_most_s)

    def rows_of(self, indices: Sequence[int], epoch: int) -> Sequence[int] | None:
        """The rows of these samples, all of which are in the batch; else None. All rows in their order: a range."""
        if epoch != self.epoch:
            return None
        if indices == self.indices:
            return range(len(self.indices))
        places = {index: row for row, index in enumerate(self.indices)}
        return [places[index] for index in indices] if all(index in places for index in indices) else None


def batch_memory(shape: tuple[int, ...], dtype: DTypeLike) -> Array:
    """Memory for a batch; pinned in a process that uses a CUDA device, which then copies it by itself."""
    if not torch.cuda.is_initialized():
        return np.empty(shape, dtype)
    # whoever copies it waits for the end (non_blocking=False): the memory is used again as soon as the batch is gone
    pinned: Array = torch.empty(shape, dtype=torch.from_numpy(np.empty(0, dtype)).dtype, pin_memory=True).numpy()
    return pinned


def filled_up(samples: list[Array], empty: Array) -> Array:
    """Put arrays together, with zeros at the ends of smaller ones. empty (0, ...): a batch of none."""
    if not samples:
        return empty
    found = np.zeros((len(samples), *np.max([sample.shape for sample in samples], axis=0)), empty.dtype)
    for row, sample in zip(found, samples, strict=True):
        row[tuple(map(slice, sample.shape))] = sample
    return found
