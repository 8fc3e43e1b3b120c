"""Rules of when contributions to a slice make an update without a roster: the key-value store's modes."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

from volary.server.protocol.updates import Closing, Contribution


class ShardRule(Protocol):
    """Decides a slice's updates, knowing nothing of other slices."""

    def closing(self, number: int, waiting: Iterable[Contribution]) -> Closing | None:
        """The slice's next update, `number`, if it is due. waiting: held and in no update, as they came."""
        ...


@dataclass(frozen=True)
class EachAlone:
    """Each contribution is an update at once, as under `async`."""

    def closing(self, number: int, waiting: Iterable[Contribution]) -> Closing | None:
        return next((Closing(number, (one,), 1.0, number) for one in waiting), None)


@dataclass(frozen=True)
class AllOf:
    """The sum of one of each of so many workers: synchronous."""

    workers: int

    def closing(self, number: int, waiting: Iterable[Contribution]) -> Closing | None:
        first: dict[int, Contribution] = {}
        for one in sorted(waiting):
            first.setdefault(one.worker, one)
        if len(first) < self.workers:
            return None
        return Closing(number, tuple(first.values()), 1.0, number)
