"""IDX, the format of MNIST (LeCun, Cortes, Burges): 0 0 type rank, one big-endian int32 per dimension, the values.

Only unsigned bytes (type 8) are read. A file whose name ends in .gz is gzip, unpacked within the limits of
`volary.data.formats.unpacking`. Checking needs no torch.
"""

from __future__ import annotations

import math
import struct
import zlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, BinaryIO, cast

from volary.data.formats.files import existing_file
from volary.data.formats.unpacking import beyond, gzip_file, unpacked_limit
from volary.errors import DataError

if TYPE_CHECKING:
    from torch import Tensor

    from volary.data.storage.place import Place

_ACCEPTED = "an IDX file of unsigned bytes, also as .gz"


@dataclass(frozen=True)
class IdxFile:
    """An IDX file whose header has been read. shape: as the header promises."""

    path: Place
    shape: tuple[int, ...]

    @classmethod
    def at(cls, path: Place, rank: int) -> IdxFile:
        """Read the header. rank: the dimensions it must have. Raises DataError if it is missing or something else."""
        existing_file(path, _ACCEPTED)
        header_bytes = 4 + 4 * rank
        try:
            with _opened(path) as file:
                header = file.read(header_bytes)
        except EOFError:
            header = b""
        except (OSError, zlib.error) as problem:
            raise DataError(f"{path}: cannot be read ({problem}); accepted: {_ACCEPTED}") from problem
        if len(header) < header_bytes:
            raise DataError(f"{path}: truncated: {len(header)} bytes; its header alone has {header_bytes}")
        expected = bytes((0, 0, 8, rank))
        if header[:4] != expected:
            raise DataError(
                f"{path}: starts with {header[:4].hex(' ')}; accepted: {expected.hex(' ')}, "
                f"an IDX file of unsigned bytes with {rank} dimension{'s' if rank > 1 else ''}"
            )
        shape = struct.unpack(f">{rank}I", header[4:])
        if 0 in shape:
            raise DataError(f"{path}: empty: its header says {_times(shape)}; accepted: at least one sample")
        found = cls(path, shape)
        if path.suffix == ".gz" and found._file_bytes > (limit := unpacked_limit(path)):
            if (left := len(found._content(limit))) < limit:
                found._compare(left)
            raise beyond(path, limit, f"{found._file_bytes} bytes, as its header promises, in a file without .gz")
        return found

    def check_length(self) -> None:
        """Compare the bytes that are there with the header's promise; a .gz is unpacked only if its trailer differs."""
        if self.path.suffix != ".gz":
            found = self.path.stat().st_size
        else:
            with self.path.open("rb") as file:
                file.seek(-4, 2)
                (found,) = struct.unpack("<I", file.read(4))
            # the trailer has the length modulo 2**32, and of the last member only
            whole = found == self._file_bytes % 2**32
            found = self._file_bytes if whole else len(self._content(self._file_bytes + 1))
        self._compare(found)

    def read(self) -> Tensor:
        """The values, uint8, of `shape`. Raises DataError if there are fewer or more than the header promises."""
        import torch

        if self.path.suffix != ".gz":
            self.check_length()  # before memory is taken for what there should not be
        content = self._content(self._file_bytes + 1)
        self._compare(len(content))
        values = torch.frombuffer(content, dtype=torch.uint8, offset=4 + 4 * len(self.shape))
        return values.view(self.shape)

    @property
    def _file_bytes(self) -> int:
        return 4 + 4 * len(self.shape) + math.prod(self.shape)

    def _content(self, most: int) -> bytearray:
        """Unpack the file; no more than `most` bytes of it."""
        content = bytearray()
        try:
            with _opened(self.path) as file:
                while piece := file.read(min(1 << 20, most - len(content))):
                    content += piece
        except EOFError:
            pass  # a .gz that was cut: what came out of it is compared with the header
        except (OSError, zlib.error) as problem:
            raise DataError(f"{self.path}: damaged ({problem}); accepted: {_ACCEPTED}") from problem
        return content

    def _compare(self, found: int) -> None:
        expected = self._file_bytes
        if found < expected:
            raise DataError(
                f"{self.path}: truncated: its header says {_times(self.shape)}, {expected} bytes in all; found {found}"
            )
        if found > expected:
            raise DataError(
                f"{self.path}: its header says {_times(self.shape)}, {expected} bytes in all; found more than that"
            )


def _opened(path: Place) -> BinaryIO:
    if path.suffix == ".gz":
        return cast("BinaryIO", gzip_file(path))
    return cast("BinaryIO", path.open("rb"))


def _times(shape: tuple[int, ...]) -> str:
    return "x".join(map(str, shape))
