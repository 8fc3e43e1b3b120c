"""The content of a file: its bytes, or a function that writes them piece by piece, to save memory."""

from __future__ import annotations

import hashlib
import io
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    from typing import BinaryIO

Content: TypeAlias = bytes | Callable[[Any], object]  # it calls `write` and `flush` of what it is given


class StreamedFile:
    """An open file that is written to, with the size and the checksum of what it was given.

    error: of the disk. After it nothing is written any more, and what is still given only counts: so a writer need not
    survive an error half way (torch's would end the process), and it is known how much room there should have been.
    """

    def __init__(self, file: BinaryIO) -> None:
        self._file, self._sum = file, hashlib.sha256()
        self.size_bytes = 0
        self.error: OSError | None = None

    @property
    def checksum(self) -> str:
        """The checksum of all that was written, as `volary.run.checkpoints.digest` makes it."""
        return self._sum.hexdigest()

    def write(self, data: Any) -> int:
        """Write the bytes of a buffer on; how many there are."""
        size = memoryview(data).nbytes
        self.size_bytes += size
        self._try(lambda: self._file.write(data))
        if self.error is None:
            self._sum.update(data)
        return size

    def flush(self) -> None:
        """Hand all of it to the operating system."""
        self._try(lambda: self._file.flush())

    def take(self, content: Content) -> None:
        """Write all of `content`; closing the file may still fail. Raises OSError."""
        if isinstance(content, bytes):
            self.write(content)
        else:
            content(self)
        if self.error is not None:
            raise self.error

    def _try(self, work: Callable[[], object]) -> None:
        if self.error is None:
            try:
                work()
            except OSError as error:
                self.error = error


def whole(content: Content) -> bytes:
    """All of the content as bytes in memory."""
    if isinstance(content, bytes):
        return content
    buffer = io.BytesIO()
    content(buffer)
    return buffer.getvalue()
