"""Kinds of tensors that a store keeps: types by their names in torch, and shapes. Imports nothing heavy."""

from __future__ import annotations

from math import prod
from typing import Annotated, TypeAlias

from msgspec import Meta, Struct

from volary.store.protocol import Key

MOST_DIMENSIONS = 64
MOST_NUMBER = 2**63 - 1
VALUE_BYTES = {"float16": 2, "bfloat16": 2, "float32": 4, "float64": 8, "int32": 4, "int64": 8}

Count: TypeAlias = Annotated[int, Meta(ge=0, le=MOST_NUMBER)]


class TensorKind(Struct, frozen=True, array_like=True):
    """A tensor's type and shape."""

    dtype: Annotated[str, Meta(max_length=64)]
    shape: Annotated[list[Count], Meta(max_length=MOST_DIMENSIONS)]

    @property
    def size(self) -> int:
        """The number of values."""
        return prod(self.shape)

    @property
    def value_bytes(self) -> int:
        """The size of one value in bytes."""
        return VALUE_BYTES[self.dtype]

    def __str__(self) -> str:
        return f"{self.dtype} of shape {tuple(self.shape)}"


def why_not_kept(key: Key, kind: TensorKind) -> str:
    """Why no store keeps such a tensor; empty if it does."""
    if kind.dtype not in VALUE_BYTES:
        return f"key {key!r}: a tensor is of {kind.dtype}; accepted: {', '.join(VALUE_BYTES)}"
    return "" if kind.size else f"key {key!r}: a tensor is {kind}; accepted: at least one value"


def why_not_again(key: Key, known: TensorKind, kind: TensorKind) -> str:
    """Why a key of one kind is not given a tensor of another; empty if they are the same."""
    return "" if known == kind else f"key {key!r}: is {known}; accepted: the same, not {kind}"


def unknown(key: Key) -> str:
    """The sentence that refuses a key which nobody has initialised."""
    return f"key {key!r}: there is none; call init with its first values before anything else"
