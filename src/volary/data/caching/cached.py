"""Records by way of a cache: memory, then the disk of this machine, then where they come from."""

from __future__ import annotations

import hashlib
import logging
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, TypeVar

from volary.data.choosing.part import DataPart
from volary.data.datasets.mixed import MixedSamples
from volary.data.loading.pipeline import Pipeline
from volary.data.records.records import Bytes, Reading, Records
from volary.data.skipping import Skipping

if TYPE_CHECKING:
    from volary.data.caching.shelf import Shelf
    from volary.data.datasets.stream import Stream
    from volary.data.samples import Samples
    from volary.session.data_section import Cache

S = TypeVar("S", bound="Samples | Stream")
_LOG = logging.getLogger("volary.data")


class CachedRecords:
    """`records`; keeps those that were read once. reads: how many came from which level."""

    def __init__(self, records: Records, shelves: dict[str, Shelf]) -> None:
        """shelves: by the level's name, the quickest first."""
        self.inner, self._shelves = records, shelves
        self.reads: Counter[str] = Counter()
        self.remote = records.remote
        self._first = next(iter(shelves))

    @property
    def block(self) -> int:
        """The block of the records: the order of an epoch is the same with and without a cache."""
        return self.inner.block

    def __len__(self) -> int:
        return len(self.inner)

    def name(self, index: int) -> str:
        return self.inner.name(index)

    def fingerprint(self) -> str | None:
        return self.inner.fingerprint()

    @property
    def descriptors(self) -> Sequence[int]:
        """The descriptors of the first level: a forked process reads no other, as it must not change what is there."""
        return (self._shelves[self._first].descriptor,)

    def at_hand(self, indices: Sequence[int]) -> bool:
        """Whether the first level has all of them."""
        found = self._shelves[self._first].has_all(indices)
        self.reads[self._first] += len(indices) * found
        return found

    def announce(self, indices: Sequence[int]) -> bool:
        # what a disk of this machine has may still have to be brought
        return self.remote and self._shelves[self._first].has_all(indices)

    def forked(self) -> Reading:
        return self._shelves[self._first].forked()

    def expect(self, indices: Sequence[int]) -> None:
        missing = indices
        for shelf in self._shelves.values():
            missing = shelf.missing(missing)
        if missing:
            self.inner.expect(missing)

    def read(self, index: int) -> Bytes:
        """The record, from the first level that has it. Levels before that one get it, if they have room."""
        passed: list[str] = []
        for level, shelf in self._shelves.items():
            content: Bytes | None = shelf.get(index)
            if content is not None:
                break
            passed.append(level)
        else:
            level, content = "source", self.inner.read(index)
        self.reads[level] += 1
        for name in passed:
            try:
                self._shelves[name].put(index, content)
            except OSError as problem:
                self._shelves[name].full = True
                _LOG.warning("the cache's level %s takes no more: %s", name, problem)
        return content


def through_cache(samples: S, cache: Cache, budget: str) -> S:
    """The same samples; those that are read from files or a store, by way of a cache. budget: see `memory_shelf`."""
    if cache.memory.count or cache.disk.count:
        for pipeline in pipelines(samples):
            if (fingerprint := pipeline.records.fingerprint()) is not None:
                shelves = _shelves(cache, fingerprint, len(pipeline), budget)
                pipeline.read_from(CachedRecords(pipeline.records, shelves))
    return samples


def pipelines(samples: Samples | Stream) -> list[Pipeline]:
    """The pipelines that the samples come from."""
    if isinstance(samples, MixedSamples):
        return [found for part in samples.parts for found in pipelines(part)]
    if isinstance(samples, Skipping):
        return pipelines(samples.samples)
    if isinstance(samples, DataPart):
        return pipelines(samples.whole)
    return [samples] if isinstance(samples, Pipeline) else []


def reads(samples: Samples | Stream) -> Counter[str]:
    """How many records this process has read, by level: memory, disk, source. Empty without a cache."""
    total: Counter[str] = Counter()
    for pipeline in pipelines(samples):
        if isinstance(pipeline.records, CachedRecords):
            total += pipeline.records.reads
    return total


def _shelves(cache: Cache, fingerprint: str, records: int, budget: str) -> dict[str, Shelf]:
    from volary.data.caching.disk_level import disk_shelf
    from volary.data.caching.memory_level import memory_shelf

    shelves: dict[str, Shelf] = {}
    if cache.memory.count:
        name = hashlib.sha256(budget.encode()).hexdigest()
        shelves["memory"] = memory_shelf(fingerprint, records, cache.memory.count, name)
    if cache.disk.count:
        assert cache.path is not None
        shelves["disk"] = disk_shelf(fingerprint, records, cache.disk.count, cache.path)
    return shelves
