"""Batches that forked processes make, in memory that they share with this one.

Threads hand over the interpreter's lock several times a sample, and wait for it. A row that a process could not make is
made again by a thread here, which raises what there is to raise; so are all rows that are left when a process dies,
after which threads make everything.

Of large batches only two are in memory: the consumer's, and the one that is being made. The next one begins when the
consumer lets go of its batch, which it does when it has been given another one.
"""

from __future__ import annotations

import logging
import os
import threading
import weakref
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise

import torch

from volary.data.decoding.decoder import Array
from volary.data.loading.ahead import Made
from volary.data.loading.disk_reads import disk_reads
from volary.data.loading.processes import PIECES, ForkedProcesses, RowRange
from volary.data.loading.slots import DONE, FAILED, KEPT, WAITING, Slots

_LOG = logging.getLogger("volary.data")

DISK, LOOK = 1, 2  # what a process says of a piece: it read from a disk; the states of the rows say more


def most_slots(count: int) -> int:
    """Batches that so many processes may be asked for at a time: what is asked for must fit into a pipe."""
    return max(1, min(64, PIECES // count))


def divided(rows: int, least: int, count: int, most: int) -> list[tuple[int, int]]:
    """A batch in up to `most` pieces for `count` processes: (start, stop) of each, of at least `least` rows.

    The later the smaller, so that all processes end at about the same time.
    """
    edges = [0]
    while left := rows - edges[-1]:
        size = max(least, -(-left // (2 * count)))
        edges.append(edges[-1] + (left if left < 2 * least or len(edges) == most else size))
    return list(pairwise(edges))


# makes samples `indices` of `epoch` in so many rows: the numbers of those that were kept, and of those that failed
MakeRows = Callable[[list[int], int, Array], tuple[list[int], list[int]]]


@dataclass(eq=False)
class DecodingProgress:
    """The reports of processes. again: rows that threads must make. kept: samples that were kept, too."""

    reports: int = 0
    again: list[tuple[Made, list[int]]] = field(default_factory=list)
    kept: list[Array] = field(default_factory=list)
    disk: bool = False  # whether something had to be brought from a disk


class Forked:
    """`count` processes that make batches in `slots`, each at least so many rows at a time.

    begin: in a process, what it does. descriptors: open files that it needs.
    """

    def __init__(
        self, begin: Callable[[], MakeRows], count: int, slots: Slots, least_rows: int, descriptors: Iterable[int]
    ) -> None:
        self._slots, self._count, self._least_rows = slots, count, least_rows
        self._processes: ForkedProcesses | None = ForkedProcesses(count, partial(_begun, begin, slots), descriptors)
        self._newest: dict[int, Made] = {}  # of each slot
        self._waiting: deque[Made] = deque()  # for a slot
        self._dropped: list[Made] = []
        self._lock = threading.RLock()  # of what begins: a batch may be let go of by any thread, at any time
        self._owner = os.getpid()

    @property
    def alive(self) -> bool:
        """Whether all decoding processes are running."""
        return self._processes is not None

    def begin(self, indices: list[int], epoch: int) -> Made | None:
        """A batch that is made, at once or when there is memory; None if there will be none, or no process."""
        self._free_dropped()
        if self._processes is None or not 0 < len(indices) <= self._slots.rows:
            return None
        with self._lock:
            if not self._slots.free and not self._slots.unused:
                return None
            made = Made(indices, epoch, self._slots.samples[0, :0], len(indices), begun=False)
            self._waiting.append(made)
            self._begin_waiting()
        return made

    def begin_now(self, made: Made) -> bool:
        """Begin a batch that is wanted and still waits. False if there is no memory for it, or no process.

        The consumer keeps earlier batches: from now on nothing waits as long as there is a slot.
        """
        with self._lock:
            self._slots.use_all()
            self._begin_waiting()
            if not made.begun:
                self._waiting.remove(made)
        return made.begun

    @property
    def batches(self) -> int:
        """The number of batches that may be in memory at once, with the consumer's."""
        return self._slots.count - len(self._slots.unused)

    def use_another_slot(self) -> None:
        """Have one more batch in memory from now on."""
        if self._slots.unused:
            self.free(self._slots.unused.pop())

    def lend(self, slot: int, view: Array) -> None:
        """Take a slot back once nobody has the view of its batch."""
        weakref.finalize(view, _let_go, weakref.ref(self), slot).atexit = False

    def give_back(self, made: Made) -> None:
        """Free the slot of a batch that nobody has or wants any more."""
        with self._lock:
            if made.begun:
                self._slots.wanted[made.slot] = False
                self._dropped.append(made)
            else:
                self._waiting.remove(made)

    def free(self, slot: int) -> None:
        """Free a slot whose batch nobody has any more."""
        if os.getpid() == self._owner:  # else another process that was forked meanwhile
            with self._lock:
                self._slots.free.append(slot)
                self._begin_waiting()

    def _free_dropped(self) -> None:
        for made in [made for made in self._dropped if not made.left]:
            self._dropped.remove(made)
            self.free(made.slot)

    def _begin_waiting(self) -> None:
        while self._waiting and self._slots.free and self._processes is not None:
            made = self._waiting.popleft()
            slot = self._slots.take(made.indices)
            count = len(made.indices)
            made.out, made.slot, made.elsewhere, made.begun = self._slots.samples[slot, :count], slot, count, True
            self._newest[slot] = made
            pieces = divided(count, self._least_rows, self._count, PIECES // self._slots.count)
            self._processes.submit([RowRange(slot, made.epoch, start, stop) for start, stop in pieces])

    def collect(self, at_most_s: float) -> DecodingProgress:
        """Collect what has been done since the last call; wait until there is something."""
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
        self._free_dropped()
        return progress

    def _look(self, progress: DecodingProgress, slot: int, start: int, stop: int) -> int:
        """Look at the state of each row; return how many must be made again."""
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


def _let_go(forked: weakref.ref[Forked], slot: int) -> None:
    if (there := forked()) is not None:
        there.free(slot)


def _begun(begin: Callable[[], MakeRows], slots: Slots) -> Callable[[RowRange], int]:
    """Return, in a process, the function that makes the rows of a piece and reports on it."""
    torch.set_num_threads(1)  # its other threads were not forked
    make = begin()

    def work(piece: RowRange) -> int:
        slot, epoch, start, stop = piece
        if not slots.wanted[slot]:
            return 0
        before = disk_reads()
        kept, failed = make(slots.indices[slot, start:stop].tolist(), epoch, slots.samples[slot, start:stop])
        states = slots.states[slot, start:stop]
        states[:] = DONE
        if kept or failed:
            states[kept], states[failed] = KEPT, FAILED
        return (DISK if disk_reads() > before else 0) | (LOOK if kept or failed else 0)

    return work
