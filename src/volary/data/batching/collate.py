"""A user's samples to one batch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from volary.data.batching.padding import IGNORED, padded
from volary.errors import DataError

_ACCEPTED = "a pair (input, target), each a tensor, a numpy array or a number"


def collate(
    samples: Sequence[Any],
    numbers: Sequence[int],
    name: str,
    *,
    pad: bool = False,
    check_filled: Callable[[Tensor], None] | None = None,
) -> tuple[Tensor, Tensor]:
    """Stack pairs to inputs (n, ...) and targets (n, ...). numbers, name: what to call a sample that does not fit.

    pad: fill up those that are smaller, inputs with 0 and targets with IGNORED. check_filled: see `let_differ`.
    """
    pairs = [_pair(sample, number, name) for sample, number in zip(samples, numbers, strict=True)]
    inputs, targets = [pair[0] for pair in pairs], [pair[1] for pair in pairs]
    stacked = _stack(targets, numbers, name, IGNORED if pad else None)
    if check_filled is not None and any(target.shape != targets[0].shape for target in targets):
        check_filled(torch.full_like(stacked, IGNORED))
    return _stack(inputs, numbers, name, 0 if pad else None), stacked


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


def _stack(values: list[Tensor], numbers: Sequence[int], name: str, fill: int | None) -> Tensor:
    first = values[0]
    for value, number in zip(values, numbers, strict=True):
        fits = value.shape == first.shape if fill is None else value.dim() == first.dim()
        if not fits or value.dtype != first.dtype:
            raise DataError(
                f"{name}: sample {number} is {tuple(value.shape)} {value.dtype}, sample {numbers[0]} is "
                f"{tuple(first.shape)} {first.dtype}; accepted: one shape and type"
                + (" (data.pad fills up the smaller ones)" if fill is None else ", or as many dimensions")
            )
    return torch.stack(values) if fill is None else padded(values, fill)
