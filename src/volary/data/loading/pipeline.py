"""Samples in storage: read and decoded ahead of those who fetch them, into batches, by threads or by processes.

A batch is one array that is filled piece by piece, so that all cores make the first batch, too. Whoever decoded
what, a batch has its samples in the order that was asked for. Forked processes make all batches but the first, where
they can and it is worth it (`loading/choice.py`): threads wait for the interpreter's lock. `AHEAD` batches are made
ahead, and more, up to `MEMORY_BYTES` of them, if a batch is late after whoever makes them had nothing to do, and of
samples in a store at once; while the consumer is slower, nothing grows. Processes begin with memory for a few batches,
of up to half of these bytes, in which the consumer's counts; what is told ahead beyond that waits for it.
"""

from __future__ import annotations

import math
import time
import weakref
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial

import numpy as np
import torch
from torch import Tensor

from volary.data.data_names import renumber
from volary.data.decoding.decoder import Array, Decoder
from volary.data.loading.ahead import Made, batch_memory, filled_up
from volary.data.loading.choice import Decoding, microseconds, only_threads, rather_threads
from volary.data.loading.forked import Forked, MakeRows, most_slots
from volary.data.loading.readers import Readers
from volary.data.loading.sample_maker import SampleMaker
from volary.data.loading.scale import Scale
from volary.data.loading.slots import Slots
from volary.data.loading.threads import Threads
from volary.data.loading.transforming import Varied
from volary.data.records.records import Forkable, Records
from volary.errors import CorruptSample, DataError

AHEAD = 2  # batches, to begin with: the one that is fetched next, and another one
MOST_AHEAD = 32  # of 128 small records of a pack they are a window of blocks, which comes from a store at once
MEMORY_BYTES = 64 * 2**20  # of more batches than at the beginning
STUCK_S = 300.0  # without a single sample of a batch: storage does not answer
_SOON_S = 0.01  # until threads that have nothing more to do have ended
_PIECES = 16  # of a batch, a thread: few rows each, so that all end at about the same time
_PIECE_S = 1.5e-3  # of a core, at least, for a piece of samples: handing it over costs some of that
_SHARED_BYTES = 2 * 2**30  # of addresses for batches that processes make; memory is taken for those that are made
_LEAST_SLOTS = 4  # what the consumer has, what is made, what is made next, and one that was dropped
_LEAST_USED = 2  # of them, unless the consumer keeps batches: what it has, and what is made
_GROWTH = 8  # by which a batch may exceed the first one; processes make no larger ones


class Pipeline:
    """Samples of `records`, decoded. All have the shape of the first that can be read.

    targets (n, ...): of the samples. scale: what becomes of a batch of images in the end; None leaves it as it was
    decoded. vary: what becomes of a decoded sample in an epoch. cache_bytes: decoded samples are kept if all of them
    fit into so much. own_code: whether decode or vary call code of the user's, which is never called in a process.
    """

    def __init__(
        self,
        records: Records,
        targets: Tensor,
        classes: int | None,
        decode: Decoder,
        scale: Scale | None,
        *,
        vary: Varied | None = None,
        cache_bytes: int = 0,
        own_code: bool = False,
    ) -> None:
        self.classes = classes
        self.targets, self.scale = targets, scale
        self._readers, self._announce = Readers(records), _announce(records)
        with self._readers.watching():
            self._maker = SampleMaker(records, decode, vary, cache_bytes)
        why = only_threads(records, own_code)
        self._sample_s = math.inf if why else self._maker.seconds()
        self._cores = torch.get_num_threads()
        self._threads = Threads(self._cores, "decode")
        self.remarks: tuple[str, ...] = ()  # on what of the data is not read
        self.class_names: tuple[str, ...] = ()  # by number; none: classes are numbers
        self.pad = False  # whether images that are smaller than others of their batch are filled up
        self._forked: Forked | None = None
        self._least_rows = max(1, round(_PIECE_S / self._sample_s))  # of a piece
        why = why or rather_threads(self._sample_s, len(records))
        self._decoding = Decoding("threads", self._cores, why) if why else None
        self._began = False  # to make batches
        self._newest: Made | None = None
        self._ahead: deque[Made] = deque()
        self._depth, self._most_ahead = AHEAD, MOST_AHEAD
        self._idled, self._room = False, True
        self._spare: list[Array] = []
        self._lent_by_threads: weakref.finalize[[list[Array], Array], Array] | None = None  # the newest batch of theirs

    def __len__(self) -> int:
        return len(self.records)

    @property
    def records(self) -> Records:
        """The records that the samples are read from."""
        return self._maker.records

    @property
    def decode(self) -> Decoder:
        """The decoder that makes a sample of a record."""
        return self._maker.decode

    @property
    def block(self) -> int:
        return self.records.block

    @property
    def input_shape(self) -> tuple[int, ...]:
        """The shape of the first sample that can be read."""
        return self.scale.shape(self._maker.shape) if self.scale else self._maker.shape

    @property
    def input_dtype(self) -> torch.dtype:
        """float32 with a scale, else the decoder's."""
        return torch.float32 if self.scale else torch.from_numpy(np.empty(0, self._maker.dtype)).dtype

    @property
    def decoding(self) -> Decoding | None:
        """Says who decodes; None until it is decided whether processes do."""
        if self._forked is not None and not self._forked.alive:
            return Decoding("threads", self._cores, "a process that decoded has died")
        return self._decoding

    @property
    def readers(self) -> int:
        """Threads that read ahead of those who decode; 0 while all is found in memory."""
        return self._readers.count.number if self._readers.working else 0

    @property
    def readers_why(self) -> str:
        """Why so many; empty while that is not settled."""
        return self._readers.count.why

    @property
    def ready(self) -> int:
        """Batches that were made ahead and are done."""
        return sum(not made.left for made in list(self._ahead))

    @property
    def room(self) -> bool:
        """Whether another batch may be made ahead."""
        return self._room

    def read_from(self, records: Records) -> None:
        """Take the same records from somewhere else. Nothing is being read yet."""
        self._maker.read_from(records)
        self._readers, self._announce = Readers(records), _announce(records)

    def renumbered(self, numbers: Tensor, class_names: tuple[str, ...]) -> Pipeline:
        """Renumber these very samples, of which nothing was fetched yet, and return them."""
        if self.targets.is_floating_point():  # of each label whether it is there
            labels = self.targets.new_zeros(len(self), len(class_names))
            self.targets = labels.index_copy(1, numbers, self.targets)
        else:
            self.targets = renumber(self.targets, numbers)
        self.classes, self.class_names = len(class_names), class_names
        return self

    def prefetch(self, indices: Tensor, epoch: int) -> bool:
        """Begin to decode a batch, unless enough of them are on their way, or all of it is at hand."""
        if self._newest is not None:
            self._release(self._newest)
            self._newest = None
        if not self._room:
            return False
        numbers = indices.tolist()
        if self.records.remote and not self._began:
            self._depth = max(AHEAD, min(MOST_AHEAD, self._fit(len(numbers))))
        if self._maker.kept(numbers) is not None or not self._may_begin(len(numbers)):
            return False
        self._look_who_is_idle()
        self._ahead.append(self._begin(numbers, epoch))
        self._room = len(self._ahead) < self._depth
        return True

    def fetch(self, indices: Tensor, epoch: int = 0) -> tuple[Tensor, Tensor]:
        """Inputs and targets (n, ...) of these samples. Raises CorruptSample, and DataError if storage is stuck."""
        inputs, targets = self.take(indices, epoch)
        return self.scale(inputs) if self.scale else inputs, targets

    def take(self, indices: Tensor, epoch: int) -> tuple[Tensor, Tensor]:
        """The same, as they were decoded."""
        targets, numbers = self.targets.index_select(0, indices), indices.tolist()
        if (kept := self._maker.kept(numbers)) is not None:
            return torch.from_numpy(kept).index_select(0, indices), targets
        made, rows = self._made(numbers, epoch)
        begun_s = time.perf_counter()
        self._wait(made)
        self._readers.took(time.perf_counter() - begun_s, len(made.indices), made.readers)
        for row in rows if made.problems else ():
            if row in made.problems:
                raise _anew(made.problems[row])
        if self.pad:
            empty = np.empty((0, *self._maker.shape), self._maker.dtype)
            return torch.from_numpy(filled_up([made.out[row] for row in rows], empty)), targets
        return self._lent(made) if isinstance(rows, range) else torch.from_numpy(made.out[rows]), targets

    def _may_begin(self, rows: int) -> bool:
        """Whether it is decided who makes the next batch. The first one is made by threads, which are there at once."""
        if self._decoding is None and self._began:
            # what a thread holds when a process is forked, that one would hold for ever
            if self._ahead or not (self._threads.end(_SOON_S) and self._readers.end(_SOON_S)):
                return False
            self._decoding = self._decided(rows)
        return True

    def _decided(self, rows: int) -> Decoding:
        """Start processes if they can read the records and batches have memory of one size. rows: of a batch."""
        if self.pad:
            return Decoding("threads", self._cores, "samples differ in size")
        if not isinstance(self.records, Forkable) or not self.records.at_hand([]):
            return Decoding("threads", self._cores, "samples are read from a store, and no cache has them in memory")
        self._at_hand = self.records.at_hand
        largest = _GROWTH * rows
        fit = self._fit(rows) // 2
        count = min(
            most_slots(self._cores), max(_LEAST_SLOTS, _SHARED_BYTES // max(1, largest * self._maker.sample_bytes))
        )
        try:
            # as few as keep all busy: what is written again and again stays in the processors' caches
            used = min(count, max(_LEAST_USED, min(2 * self._cores + AHEAD + 1, fit)))
            slots = Slots(count, largest, self._maker.shape, self._maker.dtype, used)
            self._forked = Forked(self._in_process, self._cores, slots, self._least_rows, self.records.descriptors)
            if (lent := self._lent_by_threads) is not None and (found := lent.detach()) is not None:
                self._forked.lend(slots.free.pop(), found[0])  # the consumer has a batch, although not in a slot
        except OSError as problem:
            return Decoding("threads", self._cores, f"processes could not be started ({problem})")
        self._most_ahead = max(AHEAD, min(MOST_AHEAD, count - 1))  # and one for the batch that the consumer has
        self._depth = min(self._most_ahead, max(self._depth, fit))
        return Decoding("processes", self._cores, f"a sample takes {microseconds(self._sample_s)} of a core")

    def _fit(self, rows: int) -> int:
        """Batches of so many rows in MEMORY_BYTES."""
        return MEMORY_BYTES // max(1, rows * self._maker.sample_bytes)

    def _collect(self, at_most_s: float) -> bool:
        """Take in what processes have done since; whether there was something."""
        if self._forked is None:
            return False
        progress = self._forked.collect(at_most_s)
        for made, rows in progress.again:
            self._threads.submit([partial(self._fill, made, rows)])
        for kept in progress.kept:
            self._maker.note_kept(kept)
        if progress.disk:
            self._readers.begin()
        return bool(progress.reports or progress.again)

    def _lent(self, made: Made) -> Tensor:
        """The batch itself; its memory is used again once nobody has it any more."""
        if made.lent:
            return torch.from_numpy(made.out.copy())
        made.lent = True
        view = made.out.view()
        if self._forked is not None and made.slot >= 0:
            self._forked.lend(made.slot, view)
        else:
            self._lent_by_threads = weakref.finalize(view, _give_back, self._spare, made.out)
        return torch.from_numpy(view)

    def _made(self, numbers: list[int], epoch: int) -> tuple[Made, Sequence[int]]:
        """The batch that has these samples, and their rows in it: the newest, one that is made ahead, or a new one."""
        if self._newest is not None:
            rows = self._newest.rows_of(numbers, epoch)  # again, without those that could not be read
            if rows is not None:
                return self._newest, rows
            self._release(self._newest)
            self._newest = None
        if self._ahead and self._ahead[0].left:
            self._collect(0.0)
        while self._ahead:
            self._newest = self._ahead.popleft()
            # of processes several at a time: what is done rarely finds the cores' caches full of images
            self._room |= len(self._ahead) <= (self._depth // 2 if self._forked else self._depth - 1)
            rows = self._newest.rows_of(numbers, epoch)
            if rows is not None:
                self._adapt(self._newest)
                return self._newest, rows
            self._release(self._newest)
        self._newest = self._begin(numbers, epoch)
        return self._newest, range(len(numbers))

    def _adapt(self, made: Made) -> None:
        """Make more ahead if a batch is late after all was made that there was memory for: that evens it out."""
        if not made.left:
            self._look_who_is_idle()
            return
        batches = self._depth if self._forked is None else self._forked.batches
        if self._idled and (batches + 1) * len(made.indices) * self._maker.sample_bytes <= MEMORY_BYTES:
            self._idled, self._depth = False, min(self._most_ahead, self._depth + 1)
            if self._forked is not None:
                self._forked.use_another_slot()

    def _look_who_is_idle(self) -> None:
        self._idled |= bool(self._ahead) and not any(one.left and one.begun for one in self._ahead)

    def _begin(self, numbers: list[int], epoch: int) -> Made:
        self._began = True
        at_hand = self._forked is not None and self._at_hand(numbers)
        if not self._announce(numbers):
            self._readers.expect(self._maker.not_decoded(numbers))
        elif not self.records.remote:
            self._readers.working = False  # the kernel brings it
        if at_hand and self._forked and (found := self._forked.begin(numbers, epoch)):
            self._spare.clear()  # in which threads made batches: processes have memory of their own
            found.readers = self._readers.count.number
            return found
        made = Made(numbers, epoch, self._memory(len(numbers)), len(numbers), readers=self._readers.count.number)
        return self._by_threads(made)

    def _by_threads(self, made: Made) -> Made:
        rows = range(len(made.indices))
        size = max(self._least_rows, -(-len(rows) // (_PIECES * self._cores)))
        self._threads.submit(partial(self._fill, made, rows[at : at + size]) for at in rows[::size])
        return made

    def _fill(self, made: Made, rows: Sequence[int]) -> None:
        with self._readers.watching():
            for row in rows:
                if not made.wanted:
                    break
                index = made.indices[row]
                try:
                    if self._maker.put(index, made.epoch, made.out, row):
                        self._maker.note_kept(index)
                except CorruptSample as problem:  # without where it was raised, which would keep all of us
                    made.problems[row] = problem.with_traceback(None)
                except Exception as problem:  # is raised where the batch is fetched
                    made.problems[row] = problem
                except BaseException as problem:  # a SystemExit in the user's code would end this thread, unseen
                    name = self.records.name(index)
                    made.problems[row] = DataError(
                        f"{name}: raised {type(problem).__name__} ({problem}) when it was made"
                    )
        made.finish(len(rows))

    def _in_process(self) -> MakeRows:
        """Return, in a forked process, the function that makes samples."""
        self._let_go_of_the_first_batch()
        return self._maker.forked()

    def _let_go_of_the_first_batch(self) -> None:
        """Let go of it in a forked process, which would keep the memory when the consumer has let go."""
        if self._lent_by_threads is not None and (lent := self._lent_by_threads.peek()) is not None:
            _, _, (_, memory), _ = lent
            with suppress(ValueError):  # it is pinned
                memory.resize(0, refcheck=False)

    def _wait(self, made: Made) -> None:
        if not made.begun and self._forked is not None and not self._forked.begin_now(made):
            made.out, made.begun = self._memory(len(made.indices)), True
            self._by_threads(made)
        while left := made.left:
            moved = self._collect(STUCK_S) if made.elsewhere else made.wait(STUCK_S)
            if not moved and made.left == left:
                name = self.records.name(made.indices[0])
                raise DataError(f"{name}: storage gave none of the samples of a batch for {STUCK_S:g} s")

    def _memory(self, rows: int) -> Array:
        """Memory of an earlier batch, if there is some: fresh memory costs a page fault every 4 kB."""
        if self.pad:
            return np.empty(rows, dtype=object)
        while self._spare:
            memory = self._spare.pop()
            if len(memory) == rows:
                return memory
        return batch_memory((rows, *self._maker.shape), self._maker.dtype)

    def _release(self, made: Made) -> None:
        """Let its memory be used again, unless threads still write there."""
        made.wanted = False
        if self._forked is not None and (made.slot >= 0 or not made.begun):
            if not made.lent:
                self._forked.give_back(made)
        elif not made.left and not made.lent and not self.pad:
            _give_back(self._spare, made.out)


def _anew(problem: Exception) -> Exception:
    """The error to raise: a new one for a corrupt sample, as a kept one must not know where it was raised."""
    if not isinstance(problem, CorruptSample):
        return problem
    found = CorruptSample(*problem.args)
    found.index, found.__cause__ = problem.index, problem.__cause__
    return found


def _announce(records: Records) -> Callable[[Sequence[int]], bool]:
    return records.announce if isinstance(records, Forkable) else lambda _: False


def _give_back(spare: list[Array], memory: Array) -> None:
    if len(spare) < AHEAD:
        spare.append(memory)
