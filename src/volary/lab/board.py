"""The meeting point of a lab's ranks: an unnamed file that all inherit. Nothing listens, and it goes with them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from volary.run.launch.file_board import FileBoard


@dataclass(frozen=True)
class LabMeeting:
    """board: to read and write from here. descriptor: what ranks keep open. environment: where they find it."""

    board: FileBoard
    descriptor: int

    @property
    def environment(self) -> dict[str, str]:
        """The environment variables with which a rank finds the others."""
        return {"VOLARY_LAB_MEET": f"/proc/self/fd/{self.descriptor}"}


@contextmanager
def meeting() -> Iterator[LabMeeting]:
    """A meeting place for the ranks that are started meanwhile."""
    descriptor = os.memfd_create("volary-lab")
    try:
        yield LabMeeting(FileBoard(Path(f"/proc/self/fd/{descriptor}")), descriptor)
    finally:
        os.close(descriptor)
