"""One sample after the other: its record is read and decoded, kept if there is room, and varied for its epoch."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial

import numpy as np

from volary.data.decoding.decoder import Array, Decoder
from volary.data.loading.forked import MakeRows
from volary.data.loading.slots import shared_array
from volary.data.loading.transforming import Varied
from volary.data.records.records import Bytes, Forkable, Reading, Records
from volary.errors import CorruptSample, DataError

_TRIES, _TRIED_S = 8, 1e-4  # that a sample is made to see how long it takes, and of a core until that is enough


class SampleMaker:
    """Makes samples of `records` in rows of batches. Called from several threads at once, and in forked processes.

    shape, dtype: of the first that can be read, which all rows have. cache_bytes: decoded samples are kept if all of
    them fit into so much. Raises CorruptSample if none can be read.
    """

    def __init__(self, records: Records, decode: Decoder, vary: Varied | None, cache_bytes: int) -> None:
        self.records, self.decode, self._vary = records, decode, vary
        self._get: Callable[[int], Bytes] = records.read
        self._number, first = self._first()
        made = self._varied(first, 0, self._number)
        self.shape, self.dtype, self.sample_bytes = made.shape, made.dtype, made.nbytes
        fits = first.nbytes * len(records) <= cache_bytes
        # memory that is never written is never taken: a cache costs what was decoded so far
        self._cache = shared_array((len(records), *first.shape), first.dtype) if fits else None
        self._cached = shared_array((len(records),), np.bool_)
        self._only_decodes = self._cache is None and vary is None

    def read_from(self, records: Records) -> None:
        """Take the same records from somewhere else. Nothing is being read yet."""
        self.records, self._get = records, records.read

    def seconds(self) -> float:
        """Measure the seconds of a core to make a sample again; the least of a few times."""
        found: list[float] = []
        for _ in range(_TRIES):
            start = time.thread_time()
            self._varied(self._read(self._number, None), 0, self._number)
            found.append(time.thread_time() - start)
            if sum(found) > _TRIED_S:
                break
        return min(found)

    def kept(self, numbers: Sequence[int]) -> Array | None:
        """The array of all samples if these are in it as a batch has them, in every epoch; else None."""
        whole = self._vary is None and self._cache is not None and bool(self._cached[numbers].all())
        return self._cache if whole else None

    def not_decoded(self, numbers: list[int]) -> list[int]:
        """The numbers whose records have yet to be read."""
        return numbers if self._cache is None else [number for number in numbers if not self._cached[number]]

    def note_kept(self, indices: int | Array) -> None:
        """Note that these samples are whole in the cache now."""
        self._cached[indices] = True

    def put(self, index: int, epoch: int, batch: Array, row: int) -> bool:
        """Make the sample in a row of a batch, or of a batch of objects, as which they may differ in size.

        Whether it can be noted as kept now, and could not before.
        """
        out = None if batch.dtype.hasobject else batch[row]
        if self._only_decodes:
            sample, kept = self._read(index, out), False
        else:
            sample, kept = self._finished(index, epoch, out)
        if sample is not out:
            self._place(sample, index, batch, row)
        return kept

    def forked(self) -> MakeRows:
        """Return, in a forked process, what makes samples. A thread makes failed ones again, and names errors."""
        assert isinstance(self.records, Forkable)
        read = self.records.forked()
        self._get = lambda index: next(iter(read([index])))
        return partial(self._decode_rows, read) if self._only_decodes else self._make_rows

    def _first(self) -> tuple[int, Array]:
        for index in range(len(self.records)):
            try:
                return index, self._read(index, None)
            except CorruptSample:
                if index == len(self.records) - 1:
                    raise
        raise AssertionError("there is one")

    def _decode_rows(self, read: Reading, indices: list[int], _: int, rows: Array) -> tuple[list[int], list[int]]:
        failed, decode, records = [], self.decode, iter(read(indices))
        for number, out in enumerate(rows):
            try:
                sample = decode(next(records), out)
                if sample is not out:
                    self._place(sample, indices[number], rows, number)
            except BaseException:
                failed.append(number)
        return [], failed

    def _make_rows(self, indices: list[int], epoch: int, rows: Array) -> tuple[list[int], list[int]]:
        kept, failed = [], []
        for number, index in enumerate(indices):
            try:
                if self.put(index, epoch, rows, number):
                    kept.append(number)
            except BaseException:
                failed.append(number)
        return kept, failed

    def _place(self, sample: Array, index: int, batch: Array, row: int) -> None:
        if not batch.dtype.hasobject and sample.shape != batch.shape[1:]:
            raise DataError(f"{self.records.name(index)}: {self.decode.other(sample.shape, batch.shape[1:])}")
        batch[row] = sample

    def _finished(self, index: int, epoch: int, out: Array | None) -> tuple[Array, bool]:
        """The sample as it is in this epoch, perhaps in `out`; and whether the cache has it now, and had not before."""
        known = self._cache is None or bool(self._cached[index])
        sample = self._decoded(index, None if self._vary else out)
        kept = not known and self._cache is not None and sample.shape == self._cache.shape[1:]
        return self._varied(sample, epoch, index), kept

    def _varied(self, sample: Array, epoch: int, index: int) -> Array:
        """The sample as it is in this epoch."""
        if self._vary is None:
            return sample
        try:
            return self._vary(sample, epoch, index)
        except DataError as problem:
            raise DataError(f"{self.records.name(index)}: {problem}") from problem
        except Exception as problem:  # the user's code may raise anything
            problem.add_note(f"while {self.records.name(index)} was transformed")
            raise

    def _decoded(self, index: int, out: Array | None) -> Array:
        """The sample, from the cache if it is there."""
        if self._cache is not None and self._cached[index]:
            kept: Array = self._cache[index]
            kept.flags.writeable = False  # of this view: a transform of the user's might
            return kept
        sample = self._read(index, out)
        if self._cache is not None and sample.shape == self._cache.shape[1:]:
            self._cache[index] = sample  # that it is there, is said once all of it is
        return sample

    def _read(self, index: int, out: Array | None) -> Array:
        try:
            return self.decode(self._get(index), out)
        except DataError as problem:
            raise DataError(f"{self.records.name(index)}: {problem}") from problem
        except Exception as problem:  # decoders of foreign bytes raise whatever they like
            corrupt = CorruptSample(
                f"{self.records.name(index)}: not {self.decode.kind} that can be decoded ({problem})"
            )
            corrupt.index = index
            raise corrupt from problem.with_traceback(None)
