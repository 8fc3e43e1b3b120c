"""Readers ask the disk for what is decoded next, in its order, and only while there is something to bring from it."""

from __future__ import annotations

import os
import sys
import threading
from pathlib import Path

import numpy as np
import pytest

from volary.data.loading import readers
from volary.data.loading.disk_reads import disk_reads
from volary.data.loading.readers import Readers
from volary.data.records.files import Files


class Disk:
    """Counts what each thread brings: all that is not in memory yet."""

    block, remote = 1, False

    def __init__(self) -> None:
        self.there: set[int] = set()
        self.asked: list[list[int]] = []
        self._by_thread: dict[int, int] = {}

    def expect(self, indices) -> None:
        self.asked.append(list(indices))
        for index in indices:
            self.bring(index)

    def bring(self, index: int) -> None:
        if index not in self.there:
            self.there.add(index)
            self._by_thread[threading.get_ident()] = self.count() + 1

    def count(self) -> int:
        return self._by_thread.get(threading.get_ident(), 0)


def settle() -> None:
    for thread in threading.enumerate():
        if thread.name == "read":
            thread.join(60)


def test_nothing_is_asked_for_while_all_is_in_memory():
    disk = Disk()
    disk.there.update(range(100))
    working = Readers(disk, disk.count)
    with working.watching():
        for index in range(100):
            disk.bring(index)
    working.expect(range(100))
    settle()
    assert (working.working, disk.asked) == (False, [])


def test_a_read_that_waited_for_the_disk_makes_readers_ask_for_the_rest_in_its_order():
    disk = Disk()
    working = Readers(disk, disk.count)
    with working.watching():
        disk.bring(7)
    working.expect([40, 3, 21, 12, 35, 8, 30, 1, 99])
    settle()
    asked = sorted(disk.asked)
    assert [index for piece in asked for index in piece] == [1, 3, 8, 12, 21, 30, 35, 40, 99]
    assert working.working


def test_readers_stop_once_nothing_comes_from_the_disk_and_begin_again():
    disk = Disk()
    working = Readers(disk, disk.count)
    with working.watching():
        disk.bring(0)
    for _ in range(readers.QUIET):
        working.expect(range(8))
        settle()
        if not working.working:
            break
    assert not working.working
    with working.watching():
        disk.bring(99)
    assert working.working


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux counts reads from a disk by thread")
def test_files_that_are_expected_are_in_memory_when_they_are_read():
    names = [f"{number}.bin" for number in range(40)]
    for number, name in enumerate(names):
        with Path(name).open("wb") as file:
            file.write(np.random.default_rng(number).bytes(50_000))
            file.flush()
            os.fsync(file.fileno())
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    files = Files(Path(), names)
    before = disk_reads()
    files.read(39)
    if disk_reads() == before:
        pytest.skip("files of this folder are not on a disk that the kernel counts")
    files.expect(range(39))
    brought = disk_reads()
    assert brought > before + 1
    for index in range(39):
        files.read(index)
    assert disk_reads() == brought


def test_a_file_that_is_gone_is_no_error_until_it_is_read():
    files = Files(Path(), ["nowhere"])
    files.expect([0])
    with pytest.raises(FileNotFoundError):
        files.read(0)
