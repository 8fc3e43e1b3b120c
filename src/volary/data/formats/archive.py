"""Files inside a tar, read in place: nothing is ever unpacked to disk, so no path of the archive can leave it.

A plain tar is mapped into memory; a .tar.gz is unpacked into memory, within the limits of `formats/unpacking.py`.
"""

from __future__ import annotations

import io
import mmap
import tarfile
import zlib
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import IO, TYPE_CHECKING

from volary.data.formats.files import existing_file
from volary.data.formats.unpacking import unpacked
from volary.errors import DataError

if TYPE_CHECKING:
    from volary.data.storage.place import Place

ACCEPTED = "a .tar, .tar.gz or .tgz of class folders"
SUFFIXES = (".tar", ".tar.gz", ".tgz")
_INDEXED_BYTES = 4 * 2**20  # of a tar in a store that are read at once for its members' names


@dataclass(frozen=True)
class ArchiveMember:
    """A regular file of the archive: its name and where its bytes are."""

    name: PurePosixPath
    offset: int
    size: int


@dataclass(frozen=True, eq=False)
class Archive:
    """The regular files of a tar and the bytes they are in. folders: those that it names."""

    path: Place
    members: list[ArchiveMember]
    folders: list[PurePosixPath]
    content: memoryview | mmap.mmap | None  # None: in a store, and read piece by piece

    @property
    def unpacked(self) -> bool:
        """Whether all of it is in memory."""
        return isinstance(self.content, memoryview)

    @property
    def version(self) -> str:
        """A text that changes when the file does."""
        return str(self.path.stat().st_mtime_ns) if isinstance(self.path, Path) else self.path.version()

    @classmethod
    def open(cls, path: Place) -> Archive:
        """Index the tar at `path`. Raises DataError for links, paths that leave the archive, and truncation."""
        existing_file(path, ACCEPTED)
        # a plain tar's headers are read from the file: a BytesIO of it would be a copy
        source = _unpacked(path) if _is_gzip(path) else None
        content = source.getbuffer() if source else _mapped(path) if isinstance(path, Path) else None
        members: list[ArchiveMember] = []
        folders: list[PurePosixPath] = []
        try:
            with (
                nullcontext(source) if source else path.open("rb", buffering=_INDEXED_BYTES) as file,
                tarfile.open(fileobj=file, mode="r:") as tar,
            ):
                for info in tar:
                    name = _inside(path, info)
                    if info.isdir():
                        folders.append(name)
                    else:
                        members.append(_member(path, name, info))
                _refuse_more(path, file, tar.offset)
        except (tarfile.TarError, EOFError, OSError) as problem:
            raise DataError(f"{path}: truncated or not a tar ({problem}); accepted: {ACCEPTED}") from problem
        found = cls(path, members, folders, content)
        length = path.stat().st_size if content is None else len(content)
        if any(member.offset + member.size > length for member in members) or any(found.read(length - 512, 512)):
            raise DataError(f"{path}: truncated: ends without the empty block that ends a tar; accepted: {ACCEPTED}")
        return found

    def read(self, offset: int, size: int) -> bytes:
        """`size` bytes from `offset` of the archive: those of a member."""
        if self.content is not None:
            content: bytes | memoryview = self.content[offset : offset + size]
            return bytes(content)
        assert not isinstance(self.path, Path)
        return self.path.read(offset, offset + size)


def check_archive(path: Place) -> None:
    """Whether `path` starts as a tar: reads one header. Raises DataError."""
    existing_file(path, ACCEPTED)
    try:
        with path.open("rb") as file, tarfile.open(fileobj=file, mode="r:gz" if _is_gzip(path) else "r:") as tar:
            first = tar.next()
    except (tarfile.TarError, EOFError, OSError, zlib.error) as problem:
        raise DataError(f"{path}: truncated or not a tar ({problem}); accepted: {ACCEPTED}") from problem
    if first is None:
        raise DataError(f"{path}: empty: the tar has no files; accepted: {ACCEPTED}")


def _inside(path: Place, info: tarfile.TarInfo) -> PurePosixPath:
    name = PurePosixPath(info.name)
    if name.is_absolute() or ".." in name.parts:
        raise DataError(f"{path}: has the path {info.name!r}, which leaves the archive; accepted: class/file")
    return name


def _member(path: Place, name: PurePosixPath, info: tarfile.TarInfo) -> ArchiveMember:
    if info.issym() or info.islnk():
        raise DataError(f"{path}: {info.name!r} is a link; accepted: regular files in class folders")
    if not info.isreg() or info.issparse():
        what = "sparse: its holes are left out" if info.issparse() else "not a regular file"
        raise DataError(f"{path}: {info.name!r} is {what}; accepted: regular files in class folders")
    return ArchiveMember(name, info.offset_data, info.size)


def _refuse_more(path: Place, file: IO[bytes], end: int) -> None:
    """Raise DataError for anything but zeros from `end` on: another tar's files would not be listed, nor those that
    come after a damaged header.
    """
    file.seek(end)
    while piece := file.read(_INDEXED_BYTES):
        if piece.strip(b"\0"):
            raise DataError(
                f"{path}: has more at byte {end}, where its list of files ends: another tar, or a damaged header; "
                "accepted: one whole tar"
            )


def _is_gzip(path: Place) -> bool:
    return path.suffix in (".gz", ".tgz")


def _mapped(path: Path) -> mmap.mmap:
    with path.open("rb") as file:
        return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)


def _unpacked(path: Place) -> io.BytesIO:
    into = io.BytesIO()
    try:
        for piece in unpacked(path, ACCEPTED, "the same as a plain .tar, which is read in place"):
            into.write(piece)
    except EOFError as problem:
        raise DataError(f"{path}: truncated: the gzip stream ends early; accepted: {ACCEPTED}") from problem
    into.seek(0)
    return into
