"""A state of nested plain values and tensors, taken apart: plain values to post, and tensors to broadcast."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from volary.errors import RunError

_PLAIN = (bool, int, float, str, type(None))


def taken_apart(state: Any) -> tuple[Any, list[Tensor]]:
    """Take `state` apart: what JSON can carry, with a note of type and shape for each tensor, and the tensors in order.

    Dicts, lists, tuples, numbers, text and None may be nested. Raises RunError for anything else.
    """
    tensors: list[Tensor] = []

    def plain(value: Any) -> Any:
        if isinstance(value, Tensor):
            tensors.append(value)
            return {"tensor": [str(value.dtype).removeprefix("torch."), list(value.shape)]}
        if isinstance(value, dict):
            return {"dict": [[plain(key), plain(entry)] for key, entry in value.items()]}
        if isinstance(value, (list, tuple)):
            return {"tuple" if isinstance(value, tuple) else "list": [plain(entry) for entry in value]}
        if type(value) in _PLAIN:
            return value
        raise RunError(f"a checkpoint's state holds a {type(value).__name__}; accepted: plain values and tensors")

    return plain(state), tensors


def put_together(plain: Any, tensors: list[Tensor]) -> Any:
    """The state that was taken apart, with these tensors."""
    left = iter(tensors)

    def whole(value: Any) -> Any:
        if not isinstance(value, dict):
            return value
        ((kind, content),) = value.items()
        if kind == "tensor":
            return next(left)
        if kind == "dict":
            return {whole(key): whole(entry) for key, entry in content}
        entries = [whole(entry) for entry in content]
        return tuple(entries) if kind == "tuple" else entries

    return whole(plain)


def blank(plain: Any) -> list[Tensor]:
    """Tensors of the noted types and shapes, to receive into."""
    if not isinstance(plain, dict):
        return []
    ((kind, content),) = plain.items()
    if kind == "tensor":
        dtype, shape = content
        return [torch.empty(shape, dtype=getattr(torch, dtype))]
    entries = [entry for pair in content for entry in pair] if kind == "dict" else content
    return [tensor for entry in entries for tensor in blank(entry)]
