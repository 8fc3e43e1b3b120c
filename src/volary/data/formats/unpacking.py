"""Compressed files into memory: a small file must not take all of it, by lying or on purpose."""

from __future__ import annotations

import gzip
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO, TYPE_CHECKING

from volary.errors import DataError

if TYPE_CHECKING:
    from volary.data.storage.place import Place

LIMIT_BYTES = 2 * 2**30  # of what comes out
RATIO_LIMIT = 100  # of what comes out to the file; gzip can do 1032
SMALL_BYTES = 16 * 2**20  # so much may come out whatever the ratio is
_PIECE_BYTES = 1 << 20


def unpacked(path: Place, accepted: str, instead: str) -> Iterator[bytes]:
    """Unpack the gzip file at `path`, in pieces. instead: what to give for one that is beyond the limits.

    Raises DataError for a damaged one and for the piece that is beyond a limit, EOFError for one that is cut.
    """
    total, most = 0, unpacked_limit(path)
    try:
        with gzip_file(path) as file:
            while piece := file.read(_PIECE_BYTES):
                total += len(piece)
                if total > most:
                    raise beyond(path, most, instead)
                yield piece
    except EOFError:
        raise
    except (OSError, zlib.error) as problem:
        raise DataError(f"{path}: damaged ({problem}); accepted: {accepted}") from problem


def gzip_file(path: Place) -> gzip.GzipFile:
    """Open the unpacked file, for reading."""
    return gzip.open(path if isinstance(path, Path) else path.open("rb"), "rb")


def unpacked_limit(path: Place) -> int:
    """How many bytes may come out of the gzip file at `path`."""
    return min(LIMIT_BYTES, max(SMALL_BYTES, RATIO_LIMIT * path.stat().st_size))


def check_npz(file: IO[bytes], path: Place) -> None:
    """Raise DataError if the compressed arrays of the .npz file at `path` are beyond the limits. file: it, opened.

    Of an array no more is unpacked than the file says, which is what is added up.
    """
    with zipfile.ZipFile(file) as arrays:
        packed = [one.file_size for one in arrays.infolist() if one.compress_type != zipfile.ZIP_STORED]
    if sum(packed) > (most := unpacked_limit(path)):
        raise beyond(path, most, "an .npz that is not compressed (numpy.savez)")
    file.seek(0)


def beyond(path: Place, limit_bytes: int, instead: str) -> DataError:
    """The refusal of a file that unpacks to more."""
    why = "the limit for memory" if limit_bytes == LIMIT_BYTES else f"and to more than {RATIO_LIMIT} times its size"
    return DataError(f"{path}: unpacks to more than {limit_bytes / 2**20:,.0f} MiB, {why}; accepted: {instead}")
