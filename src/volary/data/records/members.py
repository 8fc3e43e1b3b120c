"""Members of tars."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from volary.data.formats.archive import Archive, ArchiveMember
from volary.data.records.names import Names
from volary.data.records.records import FILE_LIMIT_BYTES, hashed, refuse_large
from volary.data.storage.staging import STAGED_BYTES, Staging
from volary.storage.remote_path import ByteRange, read_all


class TarMembers:
    """Files in tars, read in place. members: which of each tar, in the order of the records."""

    block = 64  # they lie one after the other

    def __init__(self, archives: Sequence[Archive], members: Sequence[tuple[int, ArchiveMember]]) -> None:
        """members: the number of the archive that each is in, and the member."""
        self._archives = archives
        self.remote = any(archive.content is None for archive in archives)
        self._staged = Staging(STAGED_BYTES, keep=False)
        self._in = np.array([archive for archive, _ in members], dtype=np.int32)
        self._names = Names(str(member.name) for _, member in members)
        self._offsets = np.array([member.offset for _, member in members], dtype=np.int64)
        self._sizes = np.array([member.size for _, member in members], dtype=np.int64)

    def __len__(self) -> int:
        return len(self._names)

    def name(self, index: int) -> str:
        """The tar's path and, behind a colon, the member's."""
        return f"{self._archives[int(self._in[index])].path}:{self._names[index]}"

    def fingerprint(self) -> str | None:
        """A digest of the tars' sizes and times of change, and members' names and places. None if all are in memory."""
        if all(archive.unpacked for archive in self._archives):
            return None
        tars = "\n".join(
            f"{archive.path} {archive.path.stat().st_size} {archive.version}" for archive in self._archives
        )
        return hashed("tars", tars, self._names.text, self._names.ends, self._offsets, self._sizes)

    def expect(self, indices: Sequence[int]) -> None:
        """Ask a store for members of its tars. Others are mapped: the kernel reads on if members are neighbours."""
        if self.remote:
            small = [index for index in indices if self._sizes[index] <= FILE_LIMIT_BYTES]
            self._staged.bring(small, lambda wanted: read_all([self._span(index) for index in wanted]))

    def read(self, index: int) -> bytes:
        size = int(self._sizes[index])
        refuse_large(size, FILE_LIMIT_BYTES, "bytes")
        archive, offset = self._archives[int(self._in[index])], int(self._offsets[index])
        if self.remote:
            return self._staged.take(index, lambda: archive.read(offset, size))
        return archive.read(offset, size)

    def _span(self, index: int) -> ByteRange:
        path = self._archives[int(self._in[index])].path
        assert not isinstance(path, Path)
        return ByteRange(path, int(self._offsets[index]), int(self._offsets[index] + self._sizes[index]))
