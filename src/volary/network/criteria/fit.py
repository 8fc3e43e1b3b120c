"""Describes a network's outputs in the words of a message."""

from __future__ import annotations

from torch import Tensor

from volary.errors import SettingError


def described(sample_shape: tuple[int, ...]) -> str:
    """The shape of a batch of such samples: (10,) is "(samples, 10)"."""
    return f"({', '.join(['samples', *map(str, sample_shape)])})"


def main_output(output: object, network: str = "", loss: str = "the loss") -> Tensor:
    """The answer, of any shape: `output`, or the first of a tuple whose others are auxiliary. Else SettingError."""
    first = output[0] if isinstance(output, tuple) and output else output
    if not isinstance(first, Tensor):
        raise SettingError(f"network {network!r} gives an object of type {type(first).__name__}; {loss} takes a tensor")
    return first
