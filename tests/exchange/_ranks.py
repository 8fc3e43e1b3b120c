"""What the exchange needs of a rank, over the group that a test's workers have joined."""

from __future__ import annotations

import json
from typing import Any

import torch
from torch.distributed.distributed_c10d import _get_default_store

from volary.exchange._base import Shape


def shape(numel: int) -> Shape:
    return Shape(numel, torch.float32, torch.device("cpu"))


class Notes:
    """A bulletin in the group's store. name: sets it apart from others in the same test."""

    def __init__(self, rank: int, world_size: int, name: str = "") -> None:
        self.rank, self.world_size, self._name = rank, world_size, name
        self._store = _get_default_store()

    def post(self, topic: str, value: Any) -> None:
        self._store.set(f"{self._name}{topic}/{self.rank}", json.dumps(value))

    def read(self, topic: str, rank: int) -> Any:
        return json.loads(self._store.get(f"{self._name}{topic}/{rank}"))

    def share(self, topic: str, value: Any) -> list[Any]:
        self.post(topic, value)
        return [self.read(topic, rank) for rank in range(self.world_size)]
