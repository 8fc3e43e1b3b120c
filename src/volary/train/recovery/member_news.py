"""News from the driver of who still trains together: the pulse's thread hears it, the training thread acts on it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from volary.errors import PeerLost
from volary.run.launch.members import GroupMembers

if TYPE_CHECKING:
    from volary.run.control.requests import ChangeMembers

LOOK_S = 0.25  # whether the run is over
MORE_S = 5.0  # beyond the silence after which a worker counts as lost: until all have heard of it


class MemberNews:
    """newest: the members as the driver named them last; nobody before it names any.

    bound_s: of the wait for news once the exchange broke, beside the time in which there is no driver: driver_missing.
    paused: the change for which the members, of which this worker is one, have all paused; None: they have not.
    """

    def __init__(self, give_up_after_s: float) -> None:
        self.newest = GroupMembers(())
        self.bound_s = give_up_after_s + MORE_S
        self.paused: ChangeMembers | None = None
        self.driver_missing = False
        self._changed = threading.Condition()
        self._interrupt: Callable[[], object] = lambda: None

    def change(self, ranks: list[Any], number: int) -> None:
        """The driver names the members. A wait for ranks that are gone is interrupted before the waiting rank learns
        so.
        """
        with self._changed:
            if number > self.newest.number:
                self._interrupt()
                self.newest = GroupMembers(tuple(map(int, ranks)), number)
                self._changed.notify_all()

    @contextmanager
    def interrupting(self, members: GroupMembers, interrupt: Callable[[], object]) -> Iterator[None]:
        """Call `interrupt`, which ends all waits for others from any thread, as soon as `members` are not the newest.

        Raises PeerLost if they are not any more.
        """
        with self._changed:
            if self.newest.number != members.number:
                raise PeerLost("one of those that are to meet is lost")
            self._interrupt = interrupt
        try:
            yield
        finally:
            with self._changed:
                self._interrupt = lambda: None

    def naming(self, rank: int, over: Callable[[], bool]) -> GroupMembers | None:
        """Wait until `rank` is named, without a bound, and return the members; None if it is `over` before."""
        with self._changed:
            while rank not in self.newest.ranks:
                if over():
                    return None
                self._changed.wait(LOOK_S)
            return self.newest

    def after(self, members: GroupMembers, lost: BaseException) -> GroupMembers:
        """Wait for the members that follow. lost: what was seen of the loss, which is raised if nobody names others."""
        with self._changed:
            until = time.monotonic() + self.bound_s
            while self.newest.number <= members.number:
                if self.driver_missing:  # whose time to be replaced is bounded as well
                    until = time.monotonic() + self.bound_s
                elif time.monotonic() > until:
                    raise lost
                self._changed.wait(LOOK_S)
            self.paused = None
            return self.newest
