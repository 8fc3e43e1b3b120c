"""Batches that forked processes make, in memory that they share with this one.

Threads that decode tiny images spend more time on handing over the interpreter's lock than on decoding. A row that a
process could not make is made again by a thread here, which raises what there is to raise; so are all rows that are
left when a process dies, after which threads make everything.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial

import torch
from numpy.typing import DTypeLike

from volary.data.decoding.decoder import Array
from volary.data.loading.ahead import Made
from volary.data.loading.disk_reads import disk_reads
from volary.data.loading.processes import PIECES, ForkedProcesses, RowRange
from volary.data.loading.slots import DONE, FAILED, KEPT, WAITING, Slots

MOST_SLOTS = 64
_PIECE_ROWS = 16  # of a batch, at least: asking for a piece costs as much as some samples
_LOG = logging.getLogger("volary.data")

Put = Callable[[int, int, Array, int], bool]  # makes sample `index` of `epoch` in a batch's row; whether it was kept


@dataclass(eq=False)
class DecodingProgress:
    """What was heard of processes. again: rows that threads must make. kept: samples that were kept, too."""

    reports: int = 0
    again: list[tuple[Made, list[int]]] = field(default_factory=list)
    kept: list[Array] = field(default_factory=list)
    disk: bool = False  # whether something had to be brought from a disk


class Forked:
    """`count` processes that make batches of up to `rows` samples. put: what they do, as it is now.

    shape, dtype: of a sample. descriptors: open files that `put` needs.
    """

    def __init__(
        self, put: Put, count: int, rows: int, shape: tuple[int, ...], dtype: DTypeLike, descriptors: Iterable[int]
    ) -> None:
        self._count = count
        self._slots = Slots(max(1, min(MOST_SLOTS, PIECES // count)), rows, shape, dtype)
        self._processes: ForkedProcesses | None = ForkedProcesses(count, partial(_begun, put, self._slots), descriptors)
        self._newest: dict[int, Made] = {}  # of each slot
        self._dropped: list[Made] = []

    @property
    def rows(self) -> int:
        """Of the largest batch."""
        return self._slots.rows

    @property
    def alive(self) -> bool:
        """Whether the processes are there."""
        return self._processes is not None

    def begin(self, indices: list[int], epoch: int) -> Made | None:
        """A batch that is being made; None if there is no memory for it, or no process."""
        for made in [made for made in self._dropped if not made.left]:
            self._dropped.remove(made)
            self._slots.free.append(made.slot)
        slot = self._slots.take(indices) if self._processes and indices else None
        if slot is None or self._processes is None:
            return None
        count = len(indices)
        made = Made(indices, epoch, self._slots.samples[slot, :count], count, slot=slot, elsewhere=count)
        self._newest[slot] = made
        size = max(_PIECE_ROWS, -(-count // self._count))
        self._processes.submit(
            [RowRange(slot, epoch, start, min(start + size, count)) for start in range(0, count, size)]
        )
        return made

    def give_back(self, made: Made) -> None:
        """Nobody wants or has the batch."""
        self._slots.wanted[made.slot] = False
        self._dropped.append(made)

    @property
    def free(self) -> list[int]:
        """Slots that nobody uses."""
        return self._slots.free

    def collect(self, at_most_s: float) -> DecodingProgress:
        """What has been done since the last call; waits until there is something."""
        progress = DecodingProgress()
        if self._processes is None:
            return progress
        reports, alive = self._processes.reports(at_most_s)
        for (slot, _, start, stop), disk in reports:
            self._hear(progress, self._newest[slot], start, stop)
            progress.disk |= bool(disk)
        progress.reports = len(reports)
        if not alive:
            self._mourn(self._processes, progress)
        return progress

    def _hear(self, progress: DecodingProgress, made: Made, start: int, stop: int) -> None:
        states = self._slots.states[made.slot, start:stop]
        highest = states.max()
        again: list[int] = []
        if highest >= KEPT:
            progress.kept.append(self._slots.indices[made.slot, start:stop][states == KEPT])
            again = [start + int(row) for row in (states == FAILED).nonzero()[0]]
            states[:] = DONE
        if again:
            progress.again.append((made, again))
        made.elsewhere -= stop - start
        made.finish(stop - start - len(again))

    def _mourn(self, processes: ForkedProcesses, progress: DecodingProgress) -> None:
        """A process has died: none goes on, and threads make what is left."""
        self._processes = None
        processes.kill()
        _LOG.warning("a process that decoded samples has died: threads decode from now on")
        for made in self._newest.values():
            states = self._slots.states[made.slot, : len(made.indices)]
            again = [int(row) for row in ((states == WAITING) | (states == FAILED)).nonzero()[0]]
            if made.elsewhere:
                done, made.elsewhere = made.elsewhere - len(again), 0
                progress.again.append((made, again))
                made.finish(done)


def _begun(put: Put, slots: Slots) -> Callable[[RowRange], int]:
    """In a process: what makes the rows of a piece, and says whether a disk was read for them."""
    torch.set_num_threads(1)  # its other threads were not forked

    def work(piece: RowRange) -> int:
        slot, epoch, start, stop = piece
        if not slots.wanted[slot]:
            return 0
        before, samples, states = disk_reads(), slots.samples[slot], slots.states[slot]
        for row, index in enumerate(slots.indices[slot, start:stop].tolist(), start):
            try:
                states[row] = KEPT if put(index, epoch, samples, row) else DONE
            except BaseException:  # is raised again where a thread makes it
                states[row] = FAILED
        return int(disk_reads() > before)

    return work
