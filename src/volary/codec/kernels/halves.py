"""Values as floats of 16 bits: what codecs `fp16` and `bf16` do. A frame is these, and two zero bytes if odd."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from volary.codec.kernels.compiled import change, compiled, kernel, read

MAGNITUDE = np.uint16(0x7FFF)
REBASE = np.float32(2.0**112)  # the exponents of fp32 and fp16 are counted from 127 and from 15


@kernel
def _largest(bits: NDArray[Any]) -> np.uint16:
    """The largest of magnitudes, whose order is that of their bits."""
    largest = np.uint16(0)
    for i in range(bits.size):
        largest = max(largest, bits[i] & MAGNITUDE)
    return largest


@kernel
def _add_fp16(bits: NDArray[Any], out: NDArray[Any], sign: np.float32) -> None:
    wide = np.empty(256, np.uint32)
    values = wide.view(np.float32)
    for start in range(0, out.size, wide.size):
        part, coming = out[start : start + wide.size], bits[start : start + wide.size]
        for i in range(part.size):
            half = np.uint32(coming[i])
            wide[i] = ((half & np.uint32(0x7FFF)) << np.uint32(13)) | ((half & np.uint32(0x8000)) << np.uint32(16))
        for i in range(part.size):
            part[i] += values[i] * REBASE * sign


@kernel
def _add_bf16(bits: NDArray[Any], out: NDArray[Any], sign: np.float32) -> None:
    wide = np.empty(256, np.uint32)
    values = wide.view(np.float32)
    for start in range(0, out.size, wide.size):
        part, coming = out[start : start + wide.size], bits[start : start + wide.size]
        for i in range(part.size):
            wide[i] = np.uint32(coming[i]) << np.uint32(16)
        for i in range(part.size):
            part[i] += values[i] * sign


@dataclass(frozen=True)
class Half:
    """A kind of 16-bit float. infinite: the bits of infinity. add: the loop that adds bits to values of fp32."""

    dtype: torch.dtype
    infinite: int
    add: Callable[[NDArray[Any], NDArray[Any], np.float32], None]

    def of(self, frame: Tensor, numel: int) -> Tensor:
        """The values of a frame, (1, numel)."""
        return frame.view(self.dtype)[:numel].view(1, numel)


FP16 = Half(torch.float16, 0x7C00, _add_fp16)
BF16 = Half(torch.bfloat16, 0x7F80, _add_bf16)


def encode(values: Tensor, frame: Tensor, kind: Half) -> bool:
    """Write the frame of `values` (1, n), what is too large as the largest there is; whether all were finite."""
    halves = kind.of(frame, values.numel())
    halves.copy_(values)
    if values.numel() % 2:
        frame[-2:] = 0
    if _all_finite(frame, kind):
        return True
    largest = torch.finfo(kind.dtype).max
    halves.copy_(values.clamp(-largest, largest))
    return bool(torch.isfinite(values).all())


def _all_finite(frame: Tensor, kind: Half) -> bool:
    if compiled(frame):
        return bool(_largest(read(frame, np.uint16)) < kind.infinite)
    return bool(torch.isfinite(frame.view(kind.dtype)).all())


def decode(frame: Tensor, out: Tensor, kind: Half) -> None:
    """Write the values of a frame to `out` (1, n)."""
    out.copy_(kind.of(frame, out.numel()))


def add(frame: Tensor, out: Tensor, kind: Half, sign: int) -> None:
    """Add the values of a frame, times `sign`, to `out` (1, n)."""
    if compiled(out):
        bits = read(frame, np.uint16)
        change(out, lambda values: kind.add(bits, values, np.float32(sign)))
    else:
        out.add_(kind.of(frame, out.numel()).float(), alpha=sign)
