"""The limits of any input pipeline: decoding from memory, on all cores, by processes that do nothing else; reading."""

from __future__ import annotations

import multiprocessing
import os
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from multiprocessing.connection import Connection
from pathlib import Path

import numpy as np

from volary.data.decoding.images import ImageDecoder
from volary.data.loading.slots import shared_array


class Limit:
    """One process a core; each has its share of the files in memory."""

    def __init__(self, files: Sequence[Path], side: int | None) -> None:
        context, cores = multiprocessing.get_context("spawn"), len(os.sched_getaffinity(0))
        self._ends: list[Connection] = []
        self._processes = []
        for number in range(cores):
            ours, theirs = context.Pipe()
            process = context.Process(target=_decode, args=(theirs, files[number::cores], side), daemon=True)
            process.start()
            self._ends.append(ours)
            self._processes.append(process)
        for end in self._ends:
            end.recv()

    def seconds(self) -> float:
        """Decode all files once."""
        start = time.perf_counter()
        for end in self._ends:
            end.send(True)
        for end in self._ends:
            end.recv()
        return time.perf_counter() - start

    def close(self) -> None:
        """End the processes."""
        for end in self._ends:
            end.send(False)
        for process in self._processes:
            process.join()


def _decode(end: Connection, files: Sequence[Path], side: int | None) -> None:
    decode, contents = ImageDecoder(3, side), [file.read_bytes() for file in files]
    out = shared_array(decode(contents[0]).shape, np.uint8)  # as ours: np.empty may be aligned so that it is slower
    end.send(True)
    while end.recv():
        for content in contents:
            out[...] = decode(content, out)
        end.send(True)


def reading_seconds(files: Sequence[Path], threads: int) -> float:
    """Read all files once, so many at a time."""
    start = time.perf_counter()
    with ThreadPoolExecutor(threads) as pool:
        for read in [pool.submit(_read, files[number::threads]) for number in range(threads)]:
            read.result()
    return time.perf_counter() - start


def _read(files: Sequence[Path]) -> None:
    for file in files:
        descriptor = os.open(file, os.O_RDONLY)
        os.read(descriptor, os.fstat(descriptor).st_size)
        os.close(descriptor)
