"""Going through all records: read by several threads, given in their order."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

from volary.data.records.records import Bytes, Records
from volary.errors import DataError

T = TypeVar("T")
READERS = 8  # more of them read small files slower again, as they wait for the interpreter's lock
_AHEAD = 32


def in_order(records: Records, indices: Iterable[int]) -> Iterator[Bytes]:
    """The records one after the other. Raises DataError for one that cannot be read."""

    def read(index: int) -> Bytes:
        try:
            return records.read(index)
        except Exception as problem:  # storage raises whatever it likes
            raise DataError(f"{records.name(index)}: cannot be read ({problem})") from problem

    return each(read, indices, READERS)


def each(made: Callable[[int], T], indices: Iterable[int], threads: int) -> Iterator[T]:
    """`made` of each index, in their order, by so many threads, a few ahead."""
    with ThreadPoolExecutor(threads) as pool:
        waiting: deque[Future[T]] = deque()
        try:
            for index in indices:
                waiting.append(pool.submit(made, index))
                if len(waiting) >= _AHEAD:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        finally:
            for future in waiting:
                future.cancel()
