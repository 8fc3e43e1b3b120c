"""Values as signs and two means a block: the loops of codec `onebit`.

A block of n values is the mean of those that are not negative and the mean of those that are, as fp32, and then
w = ceil(n / 32) words: bit j of word i is the sign of value j * w + i. So neighbours are in different words, and a
compiler makes vector instructions of the loops.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from volary.codec._base import Encoded, FrameCodec
from volary.codec.kernels.blocks import blocks_of, changed_blocks
from volary.codec.kernels.compiled import (
    INFINITE,
    change,
    compiled,
    kernel,
    largest_magnitude,
    read,
    summing_kernel,
)
from volary.codec.kernels.words import pack, unpack

ZERO, ONE = np.float32(0), np.float32(1)


def encode(codec: FrameCodec, values: Tensor, frame: Tensor) -> bool:
    """Write the frame of `values` (1, n); whether all were finite."""
    if compiled(values):
        return bool(_encode(read(values.contiguous()), read(frame, np.uint8), codec.block))
    return all(_encode_rows(rows, frames) for rows, frames in blocks_of(codec, values.view(-1), frame))


def encode_with_feedback(codec: FrameCodec, values: Tensor, residual: Tensor, frame: Tensor) -> Encoded:
    """The same of `values` + `residual`, (1, n) each, and to `residual` what the frame leaves out; on the CPU.

    A block of values that are not all finite counts as zero.
    """
    finite, whole = _encode_with_feedback(read(values), read(residual), read(frame, np.uint8), codec.block)
    if not finite:
        return Encoded.TOO_LARGE
    return Encoded.WHOLE if whole else Encoded.LEFT_OUT


def decode(codec: FrameCodec, frame: Tensor, out: Tensor) -> None:
    """Write the values of a frame to `out` (1, n)."""
    if compiled(out):
        change(out, lambda values: _spread(read(frame, np.uint8), values, codec.block, ONE, True))
    else:
        add(codec, frame, out.zero_(), 1)


def add(codec: FrameCodec, frame: Tensor, out: Tensor, sign: int) -> None:
    """Add the values of a frame, times `sign`, to `out` (1, n)."""
    if compiled(out):
        change(out, lambda values: _spread(read(frame, np.uint8), values, codec.block, np.float32(sign), False))
        return
    for rows, frames in changed_blocks(codec, out, frame):
        rows.add_(_decode_rows(frames, rows.shape[1]), alpha=sign)


@kernel
def _encode(values: NDArray[Any], frame: NDArray[Any], block: int) -> bool:
    finite, at = True, 0
    for start in range(0, values.size, block):
        part = values[start : start + block]
        words = frame[at + 8 : at + 8 + (part.size + 31) // 32 * 4].view(np.uint32)
        finite &= _encode_block(part, frame[at : at + 8].view(np.float32), words)
        at += 8 + 4 * words.size
    return finite


@kernel
def _encode_with_feedback(
    values: NDArray[Any], residual: NDArray[Any], frame: NDArray[Any], block: int
) -> tuple[bool, bool]:
    """Whether all sums are finite, and all values."""
    finite, whole, at, bits = True, True, 0, values.view(np.uint32)
    for start in range(0, values.size, block):
        part = residual[start : start + block]
        if largest_magnitude(bits[start : start + block]) < INFINITE:
            _add_values(values[start : start + block], part)
        else:
            whole = False
        means = frame[at : at + 8].view(np.float32)
        words = frame[at + 8 : at + 8 + (part.size + 31) // 32 * 4].view(np.uint32)
        finite &= _encode_block(part, means, words)
        _add_means(words, -means[0], -means[1], part)
        at += 8 + 4 * words.size
    return finite, whole


@kernel
def _add_values(values: NDArray[Any], out: NDArray[Any]) -> None:
    for i in range(out.size):
        out[i] += values[i]


@kernel
def _encode_block(part: NDArray[Any], means: NDArray[Any], words: NDArray[Any]) -> bool:
    finite = _means(part, means)
    if part.size < 32 * words.size:
        part = np.append(part, np.zeros(32 * words.size - part.size, np.float32))
    _pack(part, words)
    return finite


@summing_kernel
def _means(part: NDArray[Any], means: NDArray[Any]) -> bool:
    """Whether both are finite, which they are if all values are."""
    positive, negative, count = ZERO, ZERO, ZERO
    for i in range(part.size):
        # NaN is neither above nor below zero: it stays in a sum
        positive += part[i] if part[i] >= ZERO else ZERO
        negative += ZERO if part[i] >= ZERO else part[i]
        count += ONE if part[i] < ZERO else ZERO
    means[0] = positive / max(ONE, np.float32(part.size) - count)
    means[1] = negative / max(ONE, count)
    if not (np.isfinite(means[0]) and np.isfinite(means[1])):
        _wide_means(part, means)
    return bool(np.isfinite(means[0]) and np.isfinite(means[1]))


@kernel
def _wide_means(part: NDArray[Any], means: NDArray[Any]) -> None:
    """The same where a sum does not fit into 32 bits, or a value is not finite."""
    positive, negative, count = 0.0, 0.0, 0
    for i in range(part.size):
        if part[i] < ZERO:
            negative += part[i]
            count += 1
        else:
            positive += part[i]
    means[0] = positive / max(1, part.size - count)
    means[1] = negative / max(1, count)


@kernel
def _pack(part: NDArray[Any], words: NDArray[Any]) -> None:
    for i in range(words.size):
        word = np.uint32(0)
        for j in range(32):
            word |= np.uint32(part[j * words.size + i] < ZERO) << np.uint32(j)
        words[i] = word


@kernel
def _spread(frame: NDArray[Any], out: NDArray[Any], block: int, sign: np.float32, anew: bool) -> None:
    at = 0
    for start in range(0, out.size, block):
        part = out[start : start + block]
        if anew:
            part[:] = 0  # it is in the nearest cache then
        means = frame[at : at + 8].view(np.float32)
        words = frame[at + 8 : at + 8 + (part.size + 31) // 32 * 4].view(np.uint32)
        _add_means(words, sign * means[0], sign * means[1], part)
        at += 8 + 4 * words.size


@kernel
def _add_means(words: NDArray[Any], positive: np.float32, negative: np.float32, out: NDArray[Any]) -> None:
    for j in range((out.size + words.size - 1) // words.size):
        row, bit = out[j * words.size : (j + 1) * words.size], np.uint32(1) << np.uint32(j)
        for i in range(row.size):
            row[i] += negative if words[i] & bit else positive


def _encode_rows(values: Tensor, frames: Tensor) -> bool:
    """Each row of `values` (rows, n) is a block; frames (rows, bytes): overwritten."""
    below = values < 0
    count = below.sum(1)
    means = frames[:, :8].view(torch.float32)
    means[:, 0] = values.masked_fill(below, 0).sum(1, dtype=torch.float64) / (values.shape[1] - count).clamp(min=1)
    means[:, 1] = values.masked_fill(~below, 0).sum(1, dtype=torch.float64) / count.clamp(min=1)
    pack(below, frames[:, 8:].view(torch.int32), 1)
    return bool(torch.isfinite(means).all())


def _decode_rows(frames: Tensor, columns: int) -> Tensor:
    means = frames[:, :8].view(torch.float32)
    below = unpack(frames[:, 8:].view(torch.int32), columns, 1).bool()
    return torch.where(below, means[:, 1:], means[:, :1])
