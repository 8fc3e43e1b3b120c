"""Random generators: seeded for everything, kept in every checkpoint."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch

_STRIDE = 2**20 + 7  # prime


def seed_all(seed: int) -> None:
    """Seed Python's, NumPy's and torch's generators (CPU and CUDA)."""
    _seed_beside_torch(seed)
    torch.manual_seed(seed)


def seed_contribution(seed: int, worker: int, clock: int) -> None:
    """Seed them for one contribution of a worker: a resumed run draws what an uninterrupted one would."""
    mixed = ((seed * _STRIDE + worker + 1) * _STRIDE + clock) % 2**63
    _seed_beside_torch(mixed)
    torch.default_generator.manual_seed(mixed)
    if torch.cuda.is_available():  # else torch writes down who asked, at length
        torch.cuda.manual_seed_all(mixed)


def _seed_beside_torch(seed: int) -> None:
    random.seed(seed)
    np.random.seed(seed % 2**32)


def generators_state() -> dict[str, Any]:
    """The state of every generator, in values that a weights-only reader accepts."""
    kind, keys, *rest = np.random.get_state(legacy=True)
    return {
        "python": random.getstate(),
        "numpy": (kind, torch.from_numpy(np.asarray(keys).astype(np.int64)), *rest),
        "torch": torch.get_rng_state(),
        "cuda": torch.cuda.get_rng_state_all() if torch.cuda.is_available() else [],
    }


def restore_generators(state: dict[str, Any]) -> None:
    """Set every generator to what `generators_state` gave."""
    random.setstate(state["python"])
    kind, keys, *rest = state["numpy"]
    np.random.set_state((kind, keys.numpy().astype(np.uint32), *rest))
    torch.set_rng_state(state["torch"])
    if state["cuda"] and torch.cuda.is_available():
        torch.cuda.set_rng_state_all(state["cuda"])


@contextmanager
def kept_generators() -> Iterator[None]:
    """Afterwards every generator is as it was before."""
    before = generators_state()
    try:
        yield
    finally:
        restore_generators(before)
