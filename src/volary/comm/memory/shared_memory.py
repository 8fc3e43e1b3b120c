"""Memory that the processes of one machine share. It has no name: it goes with the last process that holds it."""

from __future__ import annotations

import ctypes
import errno
import mmap
import os
import time
from pathlib import Path

from volary.comm.memory.futex import wait_while, wake_all
from volary.errors import PeerLost

LINE_BYTES = 64  # of a cache line: two ranks' counters never share one
_LOOK_AGAIN_S = 0.2
_cuts = 0  # how often `cut` was called


def machine() -> str:
    """The same for processes that can share memory: one boot of one machine, one view of its processes."""
    boot = Path("/proc/sys/kernel/random/boot_id")
    spaces = [Path("/proc/self/ns", name) for name in ("pid", "user")]
    known = [str(space.readlink()) for space in spaces if space.is_symlink()]
    return "/".join([boot.read_text().strip() if boot.exists() else os.uname().nodename, *known])


def available_bytes() -> int:
    """Memory that this process may still take: the machine's, and its control group's if that has a bound."""
    import psutil

    available = int(psutil.virtual_memory().available)
    group = Path("/sys/fs/cgroup")
    try:
        bound = (group / "memory.max").read_text().strip()
        used = int((group / "memory.current").read_text())
    except OSError:
        return available
    return available if bound == "max" else min(available, int(bound) - used)


def cut() -> None:
    """Let nobody wait any more for ranks that share memory by now: whoever does raises PeerLost. From any thread."""
    global _cuts
    _cuts += 1


def cuts() -> int:
    """How often `cut` was called so far: who begins to share memory remembers it."""
    return _cuts


def await_turn(counter: ctypes.c_int32, turn: int, rank: int, timeout_s: float, since: int) -> None:
    """Sleep until the `counter` of `rank`, in shared memory, has reached `turn`.

    since: `cuts` when the memory was shared. Raises PeerLost if that takes `timeout_s`, or `cut` is called.
    """
    deadline = time.monotonic() + timeout_s
    while (seen := counter.value) < turn:
        if since != _cuts:
            raise PeerLost(f"the exchange broke: rank {rank} is no longer waited for")
        if time.monotonic() > deadline:
            raise PeerLost(f"rank {rank} did not come to the exchange within {timeout_s:.0f} s")
        wait_while(counter, seen, _LOOK_AGAIN_S)


class Segment:
    """`size_bytes` of shared memory, zeroed. `Segment.create` makes it, `Segment.attach` opens it by its address."""

    def __init__(self, descriptor: int, size_bytes: int) -> None:
        self._descriptor = descriptor
        self.address = f"{os.getpid()}/{descriptor}"
        self.memory = mmap.mmap(descriptor, size_bytes)

    @classmethod
    def create(cls, size_bytes: int) -> Segment:
        """New memory. Raises OSError if there is not so much: it is taken as it is written, so that is asked first."""
        available = available_bytes()
        if size_bytes > available:
            raise OSError(errno.ENOMEM, f"{size_bytes:,} bytes are needed and {available:,} are available")
        descriptor = os.memfd_create("volary")
        os.ftruncate(descriptor, size_bytes)
        return cls(descriptor, size_bytes)

    @classmethod
    def attach(cls, address: str, size_bytes: int) -> Segment:
        """The memory that another process of the same user has created. Raises OSError if it is gone."""
        process, _, descriptor = address.partition("/")
        return cls(os.open(f"/proc/{int(process)}/fd/{int(descriptor)}", os.O_RDWR), size_bytes)

    def close_address(self) -> None:
        """Let nobody else attach; what is mapped stays mapped."""
        os.close(self._descriptor)


class Rounds:
    """Counters in shared memory by which `world_size` ranks wait for each other, asleep.

    Each rank writes its own alone. memory: at least `Rounds.size_bytes(world_size)` bytes of a segment, zeroed.
    """

    def __init__(self, memory: mmap.mmap, rank: int, world_size: int, timeout_s: float) -> None:
        offsets = [other * LINE_BYTES for other in range(world_size)]
        self._counters = [ctypes.c_int32.from_buffer(memory, offset) for offset in offsets]
        self._mine = self._counters[rank]
        self._others = [(other, self._counters[other]) for other in range(world_size) if other != rank]
        self._timeout_s, self._since = timeout_s, cuts()

    @staticmethod
    def size_bytes(world_size: int) -> int:
        """The bytes that the counters take."""
        return world_size * LINE_BYTES

    def meet(self) -> None:
        """Return when every rank has come to its next meeting. Raises PeerLost, naming who has not."""
        turn = self._mine.value + 1
        self._mine.value = turn
        wake_all(self._mine)
        for rank, counter in self._others:
            if counter.value < turn:
                await_turn(counter, turn, rank, self._timeout_s, self._since)
