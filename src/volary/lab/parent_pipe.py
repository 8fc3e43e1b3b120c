"""Ends a lab when its maker ends, however that happens: a pipe of which only the maker holds the writing end.

The first process of every host reads it and ends at its end, and the kernel ends all processes of a host with the
first. No handler, no signal and no thread is involved, so it also holds when the maker is killed.
"""

from __future__ import annotations

import os
import weakref


class ParentPipe:
    """A pipe. `held` is for those who are to end with this process: the reading end, as their standard input."""

    def __init__(self) -> None:
        self.held, self._end = os.pipe()
        _leashes.add(self)

    def let_go(self) -> None:
        """End those who hold it. Harmless when repeated."""
        for descriptor in (self._end, self.held):
            if descriptor >= 0:
                os.close(descriptor)
        self._end = self.held = -1


_leashes: weakref.WeakSet[ParentPipe] = weakref.WeakSet()


def _forget() -> None:
    # a forked child (multiprocessing) must not hold what its parent's death is to release
    for leash in _leashes:
        leash.let_go()


os.register_at_fork(after_in_child=_forget)
