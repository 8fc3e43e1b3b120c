"""Batches without samples, for a worker that has none of a step: nothing of them can be counted."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional
from torch.utils._pytree import tree_map_only

from volary.data.batching.structures import mapped


class NoSamples(Tensor):
    """A tensor without rows. What would be NaN, as the mean of nothing, is 0: the loop continues, but adds nothing."""

    @classmethod
    def __torch_function__(cls, function: Any, _: Any, given: Any = (), named: Any = None) -> Any:
        """Compute what torch computes with it."""
        with torch._C.DisableTorchFunctionSubclass():
            if function in _RESHAPES:
                given = _reshaping(*given)
            computed = _INSTEAD.get(function, function)(*given, **(named or {}))
            return computed if isinstance(computed, cls) else tree_map_only(Tensor, _of_nothing, computed)


def without_rows(batch: Any, rows: int) -> tuple[Any, bool]:
    """A batch of `rows` samples without these, and whether something of it could be left out.

    Rows are the first dimension of a tensor, or the second if the first is not as large, and the entries of a list, or
    of a tuple of text.
    """
    cut = False

    def change(part: Any) -> Any:
        nonlocal cut
        if isinstance(part, Tensor):
            dimension = next((place for place, size in enumerate(part.shape[:2]) if size == rows), None)
            if dimension is None:
                return part
            cut = True
            return part.narrow(dimension, 0, 0).as_subclass(NoSamples)
        flat = isinstance(part, list) and not any(isinstance(one, Tensor | list) for one in part)
        texts = type(part) is tuple and all(isinstance(one, str | bytes) for one in part)  # as torch collates them
        if (flat or texts) and len(part) == rows:
            cut = True
            return type(part)()
        return part

    found = mapped(batch, change)
    return found, cut


def _of_nothing(computed: Tensor) -> Tensor:
    if not computed.numel():
        return computed.as_subclass(NoSamples)
    if computed.is_floating_point() and bool(computed.isnan().any()):
        return computed.nan_to_num(0.0, torch.inf, -torch.inf)
    return computed


def _reshaping(tensor: Tensor, *sizes: Any) -> tuple[Any, ...]:
    """The arguments of `view`, with the size that torch does not find if another is 0."""
    shape = list(sizes[0]) if sizes and isinstance(sizes[0], Sequence) else list(sizes)
    if -1 not in shape or 0 not in shape:
        return tensor, *sizes
    known = prod(size or 1 for size in shape if size != -1)
    missing = prod(size or 1 for size in tensor.shape) // known
    return tensor, [missing if size == -1 else size for size in shape]


def _shuffled(tensor: Tensor, factor: int) -> Tensor:
    *before, channels, height, width = tensor.shape
    return tensor.reshape(*before, channels // factor**2, height * factor, width * factor)


def _normalised(tensor: Tensor, *, weight: Tensor | None = None, bias: Tensor | None = None, **_: Any) -> Tensor:
    return functional.batch_norm(tensor, None, None, weight, bias, training=True)


_RESHAPES = frozenset({Tensor.view, Tensor.reshape, torch.reshape})
# which torch cannot compute, or not go back through, without rows
_INSTEAD: dict[Any, Callable[..., Tensor]] = {
    torch.pixel_shuffle: _shuffled,
    functional.instance_norm: _normalised,
}
