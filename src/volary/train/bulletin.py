"""Small plain values that ranks post for each other before and between steps, over the run's keyed store."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch.distributed.distributed_c10d import Store


class Bulletin:
    """Posts and reads JSON values. Keys carry the life, so that a restarted run never reads an older one's.

    Waits are bounded by the store's timeout. waiting: what is around each wait, so that others know of it.
    """

    def __init__(
        self,
        store: Store,
        rank: int,
        world_size: int,
        life: int,
        part: str = "",
        waiting: Callable[[], AbstractContextManager[None]] = nullcontext,
    ) -> None:
        self._waiting = waiting
        self.rank, self.world_size = rank, world_size
        self._store, self._life, self._prefix = store, life, f"bulletin/{life}{part}"

    def within(self, part: str) -> Bulletin:
        """A part of it, whose topics are its own: for what happens again and again."""
        return Bulletin(self._store, self.rank, self.world_size, self._life, f"/{part}", self._waiting)

    def post(self, topic: str, value: Any) -> None:
        """Post this rank's value under `topic`."""
        self._store.set(f"{self._prefix}/{topic}/{self.rank}", json.dumps(value))

    def read(self, topic: str, rank: int) -> Any:
        """What `rank` posts under `topic`; waits for it."""
        with self._waiting():
            return json.loads(self._store.get(f"{self._prefix}/{topic}/{rank}"))

    def share(self, topic: str, value: Any) -> list[Any]:
        """Post a value and read everybody's, by rank."""
        self.post(topic, value)
        return [self.read(topic, rank) for rank in range(self.world_size)]
