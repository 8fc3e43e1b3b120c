"""Batches of any structure: tensors, text and whatever else, in lists, tuples and mappings of any depth."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Mapping, MutableMapping
from typing import Any

import torch
from torch import Tensor


def mapped(value: Any, change: Callable[[Any], Any]) -> Any:
    """The same structure, of the same types, with `change(part)` for its parts; what it changes is not opened."""
    if (changed := change(value)) is not value:
        return changed
    if isinstance(value, MutableMapping):
        changed = copy.copy(value)  # a mapping of any type, with what else it holds (transformers.BatchEncoding)
        for key, part in value.items():
            changed[key] = mapped(part, change)
        return changed
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*(mapped(part, change) for part in value))
    if isinstance(value, list | tuple):
        return type(value)(mapped(part, change) for part in value)
    return value


def moved(batch: Any, device: torch.device) -> Any:
    """The batch with its tensors on `device`; what else has a method `to` (packed sequences, graphs) moves too."""

    def move(part: Any) -> Any:
        if isinstance(part, Tensor):
            return part.to(device, non_blocking=part.is_pinned())
        return part.to(device) if hasattr(part, "to") else part

    return batch if device.type == "cpu" else mapped(batch, move)


def size_of(batch: Any) -> int | None:
    """How many samples a batch has: the length of its first tensor, or of a list without any; None if nothing tells."""
    if isinstance(batch, Tensor):
        return batch.shape[0] if batch.dim() else None
    if isinstance(batch, Mapping):
        return _first_size(batch.values())
    if isinstance(batch, list | tuple):
        return _first_size(batch) or (len(batch) or None if isinstance(batch, list) else None)
    return None


def rows_of(batch: Any, size: int, share: slice) -> Any:
    """Some samples of a batch of `size`: the rows `share` of each tensor and list of so many; the rest as it is."""

    def rows(part: Any) -> Any:
        if isinstance(part, Tensor):
            return part[share] if part.dim() and len(part) == size else part
        flat = isinstance(part, list) and not any(isinstance(one, Tensor) for one in part)
        return part[share] if flat and len(part) == size else part

    return mapped(batch, rows)


def _first_size(parts: Iterable[Any]) -> int | None:
    return next((size for part in parts if (size := size_of(part)) is not None), None)
