"""Small plain values that ranks post for each other before and between steps, over the run's keyed store."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any

from volary.comm.control.store import set_then_get

if TYPE_CHECKING:
    from torch.distributed.distributed_c10d import Store

READ_AT_ONCE = 64  # values in one message


class BoardBulletin:
    """Posts and reads JSON values. Keys carry the attempt, so that a restarted run never reads an older one's.

    Waits are bounded by the store's timeout. waiting: what is around each wait, so that others know of it.
    """

    def __init__(
        self,
        store: Store,
        rank: int,
        size: int,
        attempt: int,
        part: str = "",
        waiting: Callable[[], AbstractContextManager[None]] = nullcontext,
    ) -> None:
        self._waiting = waiting
        self.rank, self.size = rank, size
        self._store, self._attempt, self._part = store, attempt, part

    def within(self, part: str) -> BoardBulletin:
        """A part of it, whose topics are its own: for what happens again and again."""
        return BoardBulletin(self._store, self.rank, self.size, self._attempt, f"{self._part}/{part}", self._waiting)

    def beside(self, part: str) -> BoardBulletin:
        """A part of it for another thread of each rank: what waits there is not the worker."""
        return BoardBulletin(self._store, self.rank, self.size, self._attempt, f"{self._part}/{part}")

    def among(self, ranks: Sequence[int]) -> BoardBulletin:
        """A part of it for these ranks, counted from 0 there."""
        place, part = ranks.index(self.rank), f"{self._part}/ranks {'-'.join(map(str, ranks))}"
        return BoardBulletin(self._store, place, len(ranks), self._attempt, part, self._waiting)

    def post(self, topic: str, value: Any) -> None:
        """Post this rank's value under `topic`."""
        self._store.set(self._key(topic, self.rank), json.dumps(value))

    def read(self, topic: str, rank: int) -> Any:
        """Return what `rank` posts under `topic`; wait for it."""
        with self._waiting():
            return json.loads(self._store.get(self._key(topic, rank)))

    def share(self, topic: str, value: Any) -> list[Any]:
        """Post a value and read everybody's, by rank."""
        keys = [self._key(topic, rank) for rank in range(self.size)]
        with self._waiting():
            everybody = set_then_get(self._store, keys[self.rank], json.dumps(value), keys[:READ_AT_ONCE])
        for start in range(READ_AT_ONCE, self.size, READ_AT_ONCE):
            with self._waiting():
                everybody += self._store.multi_get(keys[start : start + READ_AT_ONCE])
        return [json.loads(one) for one in everybody]

    def forget(self, topic: str) -> None:
        """Take back what this rank has posted under `topic`, which nobody reads any more."""
        self._store.delete_key(self._key(topic, self.rank))

    def note(self, topic: str, value: Any) -> None:
        """Note a value for all groups of the run, this one and those that come when members change."""
        self._store.set(self._key_of_run(topic), json.dumps(value))

    def noted(self, topic: str) -> Any:
        """Return the value that was noted last under `topic`; None: none was. Never waits for one."""
        key = self._key_of_run(topic)
        return json.loads(self._store.get(key)) if self._store.check([key]) else None

    def _key_of_run(self, topic: str) -> str:
        return f"bulletin/{self._attempt}/noted/{topic}"

    def _key(self, topic: str, rank: int) -> str:
        return f"bulletin/{self._attempt}{self._part}/{topic}/{rank}"
