"""The order of an epoch, and which of it a worker takes: arithmetic alone, the same on every worker."""

from __future__ import annotations

import hashlib

import torch
from torch import Tensor

from volary.errors import SettingError


def epoch_order(samples: int, seed: int, epoch: int, shuffle: bool) -> Tensor:
    """The indices 0 to samples - 1 (samples,) int64: a permutation that seed and epoch decide, or as they come."""
    if not shuffle:
        return torch.arange(samples)
    # hashed: seed + epoch would give seed 1 in epoch 1 the order of seed 2 in epoch 0
    digest = hashlib.sha256(f"{seed}/{epoch}".encode()).digest()
    random = torch.Generator().manual_seed(int.from_bytes(digest[:7]))
    return torch.randperm(samples, generator=random)


def share_of(rank: int, world_size: int) -> slice:
    """What rank `rank` takes of a global batch: every `world_size`-th sample, from its own on."""
    return slice(rank, None, world_size)


def refuse_idle_workers(world_size: int, batch_size: int, samples: int | None) -> None:
    """Raise SettingError if a worker would never get a sample. samples: of the training part, None if unknown."""
    if world_size > batch_size:
        raise SettingError(
            f"strategy.workers is {world_size}, more than the {batch_size} samples of a step (data.batch_size); "
            f"accepted: up to {batch_size} workers, or a batch_size of at least {world_size}"
        )
    if samples is not None and world_size > samples:
        raise SettingError(
            f"strategy.workers is {world_size}, more than the {samples} samples of the training data; "
            f"accepted: up to {samples} workers"
        )
