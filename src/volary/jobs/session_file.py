"""The file that a run was submitted from: the run has a copy of its own, and says so if that is another one by now."""

from __future__ import annotations

import hashlib
from contextlib import suppress
from pathlib import Path

import msgspec


class SubmittedFile(msgspec.Struct, frozen=True):
    """The file as it was then: when it was modified (a file with another time may still be equal), and its digest."""

    path: str
    modified_ns: int
    digest: str

    @classmethod
    def of(cls, path: Path) -> SubmittedFile | None:
        """The file as it is now; None if it cannot be read."""
        with suppress(OSError):
            return cls(str(path.absolute()), path.stat().st_mtime_ns, _digest(path))
        return None

    @property
    def remark(self) -> str:
        """A sentence if it has changed since; empty if not, or if it has gone."""
        path = Path(self.path)
        with suppress(OSError):
            if path.stat().st_mtime_ns != self.modified_ns and _digest(path) != self.digest:
                return f"{path.name} was changed after the run was submitted, which keeps its own copy"
        return ""


def _digest(path: Path) -> str:
    return hashlib.blake2b(path.read_bytes(), digest_size=12).hexdigest()
