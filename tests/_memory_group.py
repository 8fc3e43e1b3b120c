"""A control group whose memory is small, for what runs out of it. Needs root."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import pytest

from volary.engine.processes import memory as _memory


@dataclass(frozen=True)
class Group:
    """A group below our own. counter: where the kernel counts those that it ended in it for want of memory."""

    folder: Path
    counter: Path

    def enter(self) -> None:
        """Be in it from now on; in a new process, before it becomes another program."""
        (self.folder / "cgroup.procs").write_text(str(os.getpid()))


@contextmanager
def small_memory(limit_bytes: int) -> Iterator[Group]:
    """A group that may use so much, without swap; skips the test where none can be made."""
    own = _memory.counter(os.getpid())
    if own is None:
        pytest.skip("needs control groups that count memory")
    second = own.name != "memory.oom_control"
    folder = own.parent / f"volary-{secrets.token_hex(4)}"
    try:
        folder.mkdir()
    except OSError as error:
        pytest.skip(f"needs a control group of its own: {error}")
    try:
        limit = folder / ("memory.max" if second else "memory.limit_in_bytes")
        if not limit.exists():
            pytest.skip("needs control groups that limit memory; here the controller is not handed down")
        limit.write_text(str(limit_bytes))
        with suppress(OSError):  # not where the kernel does not count swap
            swap, most = ("memory.swap.max", 0) if second else ("memory.memsw.limit_in_bytes", limit_bytes)
            (folder / swap).write_text(str(most))
        yield Group(folder, folder / own.name)
    finally:
        folder.rmdir()
