"""The order of an epoch, and which of it a worker takes: arithmetic alone, the same on every worker."""

from __future__ import annotations

import hashlib

import torch
from torch import Generator, Tensor


def epoch_order(samples: int, seed: int, epoch: int, shuffle: bool) -> Tensor:
    """The indices 0 to samples - 1 (samples,) int64: a permutation that seed and epoch decide, or as they come."""
    if not shuffle:
        return torch.arange(samples)
    return torch.randperm(samples, generator=seeded(seed, epoch))


def seeded(*words: int | str) -> Generator:
    """A generator that `words` decide; other words give another sequence."""
    # hashed: seed + epoch would give seed 1 in epoch 1 the order of seed 2 in epoch 0, and torch uses 32 bits alone
    digest = hashlib.sha256("/".join(map(str, words)).encode()).digest()
    return torch.Generator().manual_seed(int.from_bytes(digest[:4]))


def share_of(rank: int, world_size: int) -> slice:
    """What rank `rank` takes of a global batch: every `world_size`-th sample, from its own on."""
    return slice(rank, None, world_size)
