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

from volary.data.decoding.decoder import Array
from volary.data.loading.ahead import Made
from volary.data.loading.disk_reads import disk_reads
from volary.data.loading.processes import PIECES, ForkedProcesses, RowRange
from volary.data.loading.slots import DONE, FAILED, KEPT, WAITING, Slots

_LOG = logging.getLogger("volary.data")

_PIECES = 4  # of a batch, a process: few rows each, so that all end at about the same time
DISK, LOOK = 1, 2  # what a process says of a piece: it read from a disk; the states of the rows say more


def most_slots(count: int) -> int:
    """Batches that so many processes may be asked for at a time: what is asked for must fit into a pipe."""
    return max(1, min(64, PIECES // count))


def most_pieces(count: int, slots: int) -> int:
    """Into so many a batch is divided for `count` processes: those of all batches must fit into a pipe."""
    return min(_PIECES * count, PIECES // slots)


Put = Callable[[int, int, Array, int], bool]  # makes sample `index` of `epoch` in a batch's row; whether it was kept


@dataclass(eq=False)
class DecodingProgress:
    """What was heard of processes. again: rows that threads must make. kept: samples that were kept, too."""

    reports: int = 0
    again: list[tuple[Made, list[int]]] = field(default_factory=list)
    kept: list[Array] = field(default_factory=list)
    disk: bool = False  # whether something had to be brought from a disk


class Forked:
    """`count` processes that make batches in `slots`, each at least so many rows at a time.

    begin: in a process, what it does. descriptors: open files that it needs.
    """

    def __init__(
        self, begin: Callable[[], Put], count: int, slots: Slots, least_rows: int, descriptors: Iterable[int]
    ) -> None:
        self._slots, self._least_rows = slots, least_rows
        self._most_pieces = most_pieces(count, len(slots.free))
        self._processes: ForkedProcesses | None = ForkedProcesses(count, partial(_begun, begin, slots), descriptors)
        self._newest: dict[int, Made] = {}  # of each slot
        self._dropped: list[Made] = []

    @property
    def rows(self) -> int:
        """Samples of the largest batch that a slot holds."""
        return self._slots.rows

    @property
    def alive(self) -> bool:
        """Whether all decoding processes are running."""
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
        pieces = max(1, min(self._most_pieces, count // self._least_rows))
        size = -(-count // pieces)
        self._processes.submit(
            [RowRange(slot, epoch, start, min(start + size, count)) for start in range(0, count, size)]
        )
        return made

    def give_back(self, made: Made) -> None:
        """Free the slot of a batch that nobody has or wants any more."""
        self._slots.wanted[made.slot] = False
        self._dropped.append(made)

    @property
    def free(self) -> list[int]:
        """Slots of the shared memory that hold no batch."""
        return self._slots.free

    def collect(self, at_most_s: float) -> DecodingProgress:
        """What has been done since the last call; waits until there is something."""
        progress = DecodingProgress()
        if self._processes is None:
            return progress
        reports, alive = self._processes.reports(at_most_s)
        for slot, _, start, stop, found in reports:
            again = self._look(progress, slot, start, stop) if found & LOOK else 0
            progress.disk |= bool(found & DISK)
            made = self._newest[slot]
            made.elsewhere -= stop - start
            made.finish(stop - start - again)
        progress.reports = len(reports)
        if not alive:
            self._mourn(self._processes, progress)
        return progress

    def _look(self, progress: DecodingProgress, slot: int, start: int, stop: int) -> int:
        """At what became of each row. How many must be made again."""
        states = self._slots.states[slot, start:stop]
        progress.kept.append(self._slots.indices[slot, start:stop][states == KEPT])
        again = [start + int(row) for row in (states == FAILED).nonzero()[0]]
        states[:] = DONE
        if again:
            progress.again.append((self._newest[slot], again))
        return len(again)

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


def _begun(begin: Callable[[], Put], slots: Slots) -> Callable[[RowRange], int]:
    """In a process: what makes the rows of a piece, and says what there is to say of it."""
    torch.set_num_threads(1)  # its other threads were not forked
    put = begin()

    def work(piece: RowRange) -> int:
        slot, epoch, start, stop = piece
        if not slots.wanted[slot]:
            return 0
        before, samples, kept, failed = disk_reads(), slots.samples[slot], [], []
        for row, index in enumerate(slots.indices[slot, start:stop].tolist(), start):
            try:
                if put(index, epoch, samples, row):
                    kept.append(row)
            except BaseException:  # is raised again where a thread makes it
                failed.append(row)
        states = slots.states[slot]
        states[start:stop] = DONE
        if kept or failed:
            states[kept], states[failed] = KEPT, FAILED
        return (DISK if disk_reads() > before else 0) | (LOOK if kept or failed else 0)

    return work
