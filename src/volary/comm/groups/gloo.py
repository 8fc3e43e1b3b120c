"""gloo as the backend "volary": bound to the chosen address, and closed to newcomers once its mesh stands.

A group may connect ahead, in a thread of its own, while its ranks still train in another one: far away that takes
seconds. torch is handed it when it makes the next group, if all ranks of that have connected so. gloo's traffic is
neither encrypted nor authenticated.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import torch.distributed as dist
from torch.distributed.distributed_c10d import PrefixStore, Store

from volary.comm.control.store import KeyedStore
from volary.comm.groups.gloo_mesh import GlooMeeting, shut_down

BACKEND = "volary"
AHEAD_S = 10.0  # for which a group that connects ahead is waited for

_address = "127.0.0.1"
_meshes: list[set[int]] = []  # inodes of the connections of each group made here
_ahead: GroupAhead | None = None
_under_way: _Connecting | GroupAhead | None = None  # the group that is being made


def register(address: str = "127.0.0.1", ahead: GroupAhead | None = None) -> None:
    """Make the backend BACKEND known to torch; groups made with it from now on listen on `address`.

    ahead: the first of them, as far as this rank knows.
    """
    global _address, _ahead
    _address, _ahead = address, ahead
    dist.Backend.register_backend(BACKEND, _make, devices=["cpu"])


def address() -> str:
    """This machine's address that groups made from now on listen on."""
    return _address


def cut() -> int:
    """Shut down every connection of the groups made here: a collective that hangs on a silent peer raises at once, and
    so does a group that is being made.

    From any thread; the groups are of no use afterwards. Returns how many connections were cut.
    """
    if (making := _under_way) is not None:
        making.give_up()
    return shut_down(set().union(*_meshes))


def forget() -> None:
    """Forget all connections, after all groups are destroyed: they are no longer ours to cut."""
    _meshes.clear()


def _make(store: Store, rank: int, size: int, timeout: timedelta) -> Any:
    """Make a group, as torch asks: the one that has connected ahead, if that is what all ranks have."""
    global _ahead, _under_way
    ahead, _ahead = _ahead, None
    _under_way = ahead
    try:
        meeting = GlooMeeting(store, rank, size, _address, ahead.place_when_connected() if ahead else "")
        if ahead is not None:
            if meeting.everyones_ahead == [ahead.place(other, size) for other in range(size)]:
                meeting.close()
                _meshes.append(ahead.mesh)
                return ahead.group
            ahead.give_up()
        _under_way = _Connecting(meeting, timeout)
        group, mesh = _under_way.found()
    finally:
        _under_way = None
    _meshes.append(mesh)
    return group


class _Connecting:
    """Ranks that connect, in a thread: gloo waits there for whoever was to connect, also if that has died meanwhile."""

    def __init__(self, meeting: GlooMeeting, timeout: timedelta) -> None:
        self._meeting, self._timeout = meeting, timeout
        self._over = threading.Event()
        self._found: tuple[Any, set[int]] | None = None
        self._error: Exception | None = None

    def found(self) -> tuple[Any, set[int]]:
        """Connect; return what `GlooMeeting.connect` does, raise what it raises, or RuntimeError once it is cut."""
        threading.Thread(target=self._connect, name="connects", daemon=True).start()
        self._over.wait()
        if self._error is not None:
            raise self._error
        if self._found is None:
            raise RuntimeError("gloo: cut as the ranks connected")
        return self._found

    def give_up(self) -> None:
        """End the wait, from any thread. gloo may wait for ever in the other thread, which holds nothing up."""
        self._meeting.cut()
        self._over.set()

    def _connect(self) -> None:
        try:
            self._found = self._meeting.connect(self._timeout)
        except Exception as error:
            self._error = error
        self._over.set()


@dataclass
class GroupAhead:
    """A group that connects in a thread, as rank `rank` of `size`.

    name: which all its ranks have for it, and no other group has. opened: called in the thread, returns the store where
    they meet, and which is closed afterwards. group, mesh: as of `GlooMeeting.connect`, once it has connected.
    """

    name: str
    opened: Callable[[], KeyedStore]
    rank: int
    size: int
    address: str
    timeout: timedelta
    group: Any = field(init=False, default=None)
    mesh: set[int] = field(init=False, default_factory=set)
    _over: threading.Event = field(init=False, default_factory=threading.Event)
    _given_up: bool = field(init=False, default=False)
    _store: KeyedStore | None = field(init=False, default=None)
    _meeting: GlooMeeting | None = field(init=False, default=None)

    def start(self) -> None:
        """Begin to connect, in a thread of its own."""
        threading.Thread(target=self._connect, name="connects ahead", daemon=True).start()

    def place(self, rank: int, size: int) -> str:
        """Return the words by which a rank of a group of `size` says that it has connected ahead with this one."""
        return f"{self.name}, {rank} of {size}"

    def place_when_connected(self) -> str:
        """Return these words of this rank, once it has connected; empty if it cannot, or not in time."""
        self._over.wait(AHEAD_S)
        return "" if self.group is None or self._given_up else self.place(self.rank, self.size)

    def give_up(self) -> None:
        """End its connections, from any thread: it is of no use any more."""
        self._given_up, self.group = True, None
        if self._store is not None:
            self._store.close()
        if self._meeting is not None:
            self._meeting.cut()
        self._over.set()

    def _connect(self) -> None:
        # whatever breaks breaks again, and is said, when the ranks meet without it
        with contextlib.suppress(Exception):
            self._store = self.opened()
            with contextlib.closing(self._store):
                if self._given_up:
                    return
                meets_at = PrefixStore(f"/ahead {self.name}", self._store)
                self._meeting = GlooMeeting(meets_at, self.rank, self.size, self.address)
                group, self.mesh = self._meeting.connect(self.timeout)
            if not self._given_up:
                self.group = group
        self._over.set()
