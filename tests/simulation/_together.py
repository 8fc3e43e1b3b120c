"""A simulated replica that several ranks hold: none of them does alone what they compute together."""

from __future__ import annotations

from collections.abc import Callable, Hashable


class Together:
    """Lets `each` ranks of one replica do things at once. A rank alone waits for nobody."""

    def __init__(self, each: int) -> None:
        self.each = each
        self._here: dict[Hashable, dict[int, Callable[[], None]]] = {}

    def meet(self, what: Hashable, rank: int, then: Callable[[], None]) -> None:
        """Come to it, and do `then` once all ranks have come."""
        here = self._here.setdefault(what, {})
        assert rank not in here, f"rank {rank} comes to {what} twice"
        here[rank] = then
        if len(here) == self.each:
            for call in self._here.pop(what).values():
                call()
