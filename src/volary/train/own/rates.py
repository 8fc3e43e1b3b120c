"""Settings of optimisers, the learning rate first: if replicas are to be equal, all workers must have the same."""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from torch.optim import Optimizer

_DIGESTS = 1 << 20


class FollowedSettings:
    """The settings of this worker's newest step. digest: a whole number made of them; 0 before the first step."""

    def __init__(self) -> None:
        self._seen: list[tuple[Any, ...]] = []
        self._names: tuple[str, ...] = ()
        self.digest = 0

    def see(self, optimizer: Optimizer) -> None:
        """Remember the settings of `optimizer`, which has taken a step."""
        names = tuple(optimizer.defaults)
        seen = [tuple(_plain(group.get(name)) for name in names) for group in optimizer.param_groups]
        if seen != self._seen:
            self._names, self._seen = names, seen
            self.digest = zlib.crc32(repr(sorted(self.named().items())).encode()) % _DIGESTS

    def named(self) -> dict[str, Any]:
        """The settings that are numbers, by name."""
        return {
            name + (f" of group {place}" if place else ""): value
            for place, group in enumerate(self._seen)
            for name, value in zip(self._names, group, strict=True)
            if isinstance(value, int | float | list)
        }


def _plain(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return value.item() if value.numel() == 1 and value.device.type == "cpu" else None
    return list(value) if isinstance(value, tuple) else value
