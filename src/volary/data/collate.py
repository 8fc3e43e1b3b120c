"""A user's samples to one batch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from volary.errors import DataError

_ACCEPTED = "a pair (input, target), each a tensor, a numpy array or a number"


def collate(samples: Sequence[Any], numbers: Sequence[int], name: str) -> tuple[Tensor, Tensor]:
    """Stack pairs to inputs (n, ...) and targets (n, ...). numbers, name: what to call a sample that does not fit."""
    pairs = [_pair(sample, number, name) for sample, number in zip(samples, numbers, strict=True)]
    return _stack([pair[0] for pair in pairs], numbers, name), _stack([pair[1] for pair in pairs], numbers, name)


def _pair(sample: Any, number: int, name: str) -> tuple[Tensor, Tensor]:
    if not isinstance(sample, (tuple, list)) or len(sample) != 2:
        raise DataError(f"{name}: sample {number} is a {type(sample).__name__}; accepted: {_ACCEPTED}")
    return _tensor(sample[0], number, name), _tensor(sample[1], number, name)


def _tensor(value: Any, number: int, name: str) -> Tensor:
    """Numbers become int64 or, as networks compute in it, float32."""
    if isinstance(value, Tensor):
        return value
    if isinstance(value, (bool, int)):
        return torch.tensor(int(value))
    if isinstance(value, float):
        return torch.tensor(value, dtype=torch.float32)
    if isinstance(value, (np.ndarray, np.generic)):
        return torch.as_tensor(np.array(value))
    raise DataError(f"{name}: sample {number} holds a {type(value).__name__}; accepted: {_ACCEPTED}")


def _stack(values: list[Tensor], numbers: Sequence[int], name: str) -> Tensor:
    first = values[0]
    for value, number in zip(values, numbers, strict=True):
        if value.shape != first.shape or value.dtype != first.dtype:
            raise DataError(
                f"{name}: sample {number} is {tuple(value.shape)} {value.dtype}, sample {numbers[0]} is "
                f"{tuple(first.shape)} {first.dtype}; accepted: one shape and type"
            )
    return torch.stack(values)
