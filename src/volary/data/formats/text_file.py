"""Text files: UTF-8, with a byte order mark or without. What only is called text is refused by how it begins."""

from __future__ import annotations

from typing import TYPE_CHECKING, TextIO, cast

from volary.data.formats.files import existing_file
from volary.errors import DataError

if TYPE_CHECKING:
    from volary.data.storage.place import Place

BOM = b"\xef\xbb\xbf"
_START_BYTES = 4096
_OTHERS = {  # by their first bytes
    b"\xff\xfe": "UTF-16 or UTF-32",
    b"\xfe\xff": "UTF-16",
    b"\0\0\xfe\xff": "UTF-32",
    b"\x1f\x8b": "compressed (gzip)",
    b"BZh": "compressed (bzip2)",
    b"\xfd7zXZ\0": "compressed (xz)",
    b"\x28\xb5\x2f\xfd": "compressed (zstd)",
    b"PK\x03\x04": "a zip archive, as files of Excel are",
    b"PAR1": "Parquet",
    b"ARROW1": "Arrow",
}


def text_file(path: Place, accepted: str) -> Place:
    """`path`, if it is a file that begins as text; `accepted` ends the sentence otherwise. Raises DataError."""
    with existing_file(path, accepted).open("rb") as file:
        start = file.read(_START_BYTES)
    for magic, kind in _OTHERS.items():
        if start.startswith(magic):
            raise DataError(f"{path}: is {kind}; accepted: {accepted}")
    if b"\0" in start:
        raise DataError(f"{path}: is binary, or UTF-16: byte {start.index(0)} is 0; accepted: {accepted}")
    if start == BOM:
        raise DataError(f"{path}: empty but for a byte order mark; accepted: {accepted}")
    return path


def open_text(path: Place, accepted: str, errors: str = "strict") -> TextIO:
    """The file, opened for reading with its line ends as they are; a byte order mark is left out.

    Raises DataError, as `text_file`.
    """
    opened = text_file(path, accepted).open(encoding="utf-8-sig", errors=errors, newline="")
    return cast("TextIO", opened)


def read_text(path: Place, accepted: str) -> str:
    """Read all of the file, likewise. Raises DataError, as `text_file`, and for bytes that are not UTF-8."""
    content = text_file(path, accepted).read_bytes()
    try:
        # bytes first: reading as text would turn \r\n into \n
        return content.removeprefix(BOM).decode("utf-8")
    except UnicodeDecodeError:
        raise not_utf8(path, accepted) from None


def not_utf8(path: Place, accepted: str) -> DataError:
    """The refusal of a file that cannot be decoded, with the first line that cannot."""
    with path.open("rb") as file:
        for number, line in enumerate(file, start=1):
            try:
                line.decode("utf-8")
            except UnicodeDecodeError as problem:
                byte = line[problem.start]
                return DataError(
                    f"{path}:{number}: has the byte 0x{byte:02x}, which is not UTF-8; accepted: {accepted}"
                )
    return DataError(f"{path}: is not UTF-8; accepted: {accepted}")
