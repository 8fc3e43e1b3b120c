"""Checks of the arguments of collectives."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, TypeVar

import torch

from volary.errors import SettingError

if TYPE_CHECKING:
    from torch import Tensor

SUMMABLE = (torch.float32, torch.float64, torch.bfloat16, torch.float16)

_Way = TypeVar("_Way", bound=Callable[..., None])


def flat(values: Tensor) -> Tensor:
    """View values as (numel,), in place. Raises SettingError if they are not in one piece of the machine's memory."""
    if values.device.type != "cpu":
        raise SettingError(f"a collective was given a tensor on {values.device}; accepted: on the cpu")
    if not values.is_contiguous():
        raise SettingError("a collective was given a tensor with gaps; accepted: contiguous tensors")
    return values.detach().view(-1)


def summable(values: Tensor) -> Tensor:
    """View values as `flat` does, (numel,). Raises SettingError also if values of their dtype are not summed."""
    if values.dtype not in SUMMABLE:
        known = ", ".join(str(dtype).removeprefix("torch.") for dtype in SUMMABLE)
        raise SettingError(f"a sum was asked of {str(values.dtype).removeprefix('torch.')}; accepted: {known}")
    return flat(values)


def way(algorithm: str, known: Mapping[str, _Way]) -> _Way:
    """The way of that name. Raises SettingError if there is none."""
    if algorithm not in known:
        raise SettingError(f"algorithm is {algorithm!r}; accepted: {', '.join(known)}")
    return known[algorithm]


def root_of(root: int, world_size: int) -> int:
    """`root`, if there is such a rank. Raises SettingError."""
    if not 0 <= root < world_size:
        raise SettingError(f"root is {root}; accepted: 0 to {world_size - 1}")
    return root
