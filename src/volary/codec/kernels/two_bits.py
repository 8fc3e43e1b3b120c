"""Two bits a value: the loops of codec `threshold`.

A block of n values is the threshold, as fp32, and then w = ceil(n / 16) words: bits 2j and 2j + 1 of word i tell that
value j * w + i is above the threshold, or below its negative. So neighbours are in different words, and a compiler
makes vector instructions of the loops.
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from volary.codec._base import FrameCodec
from volary.codec.kernels.blocks import blocks_of, changed_blocks
from volary.codec.kernels.compiled import change, compiled, kernel, read, summing_kernel
from volary.codec.kernels.words import pack, unpack

PER_WORD = 16
SHARE = 0.9  # of the root mean square: about what takes most of the squares of normal and of Laplace values

Words = NDArray[np.uint32]
Values = NDArray[np.float32]


def encode(codec: FrameCodec, values: Tensor, frame: Tensor, fixed: float) -> bool:
    """Write the frame of `values` (1, n); the threshold is `fixed`, or each block's own where that is 0. Whether all
    values were finite.
    """
    if compiled(values):
        return bool(_encode(read(values.contiguous()), read(frame, np.uint32), codec.block, fixed))
    return all(_encode_rows(rows, frames, fixed) for rows, frames in blocks_of(codec, values.view(-1), frame))


def add(codec: FrameCodec, frame: Tensor, out: Tensor, sign: int) -> None:
    """Add the values of a frame, times `sign`, to `out` (1, n)."""
    if compiled(out):
        change(out, lambda values: _add(read(frame, np.uint32), values, codec.block, np.float32(sign)))
        return
    for rows, frames in changed_blocks(codec, out, frame):
        _add_rows(frames, rows, sign)


@kernel
def _encode(values: Values, frame: Words, block: int, fixed: float) -> bool:
    at = 0
    for start in range(0, values.size, block):
        part = values[start : start + block]
        squares = _squares(part)
        if not np.isfinite(squares):
            return False
        size = (part.size + PER_WORD - 1) // PER_WORD
        threshold = np.float32(fixed if fixed > 0 else SHARE * np.sqrt(squares / part.size))
        frame[at : at + 1].view(np.float32)[0] = threshold
        _write(part, threshold, frame[at + 1 : at + 1 + size])
        at += 1 + size
    return True


@summing_kernel
def _squares(values: Values) -> float:
    """The sum of squares; of 64 bits, so that it is finite if they are."""
    total = 0.0
    for place in range(values.size):
        total += np.float64(values[place]) * np.float64(values[place])
    return total


@kernel
def _write(values: Values, threshold: np.float32, words: Words) -> None:
    words[:] = 0
    for turn in range((values.size + words.size - 1) // words.size):
        part = values[turn * words.size : (turn + 1) * words.size]
        above, below = np.uint32(1) << np.uint32(2 * turn), np.uint32(2) << np.uint32(2 * turn)
        for place in range(part.size):
            words[place] |= above if part[place] > threshold else np.uint32(0)
            words[place] |= below if part[place] < -threshold else np.uint32(0)


@kernel
def _add(frame: Words, out: Values, block: int, sign: np.float32) -> None:
    at = 0
    for start in range(0, out.size, block):
        part = out[start : start + block]
        size = (part.size + PER_WORD - 1) // PER_WORD
        threshold = sign * frame[at : at + 1].view(np.float32)[0]
        _add_values(frame[at + 1 : at + 1 + size], threshold, part)
        at += 1 + size


@kernel
def _add_values(words: Words, threshold: np.float32, out: Values) -> None:
    for turn in range((out.size + words.size - 1) // words.size):
        part, shift = out[turn * words.size : (turn + 1) * words.size], np.uint32(2 * turn)
        for place in range(part.size):
            code = np.int32((words[place] >> shift) & np.uint32(3))
            part[place] += threshold * np.float32((code & 1) - (code >> 1))


def _encode_rows(values: Tensor, frames: Tensor, fixed: float) -> bool:
    """Each row of `values` (rows, n) is a block; frames (rows, bytes): overwritten."""
    squares = values.double().square().sum(1, keepdim=True)
    if not bool(squares.isfinite().all()):
        return False
    own = SHARE * (squares / values.shape[1]).sqrt()
    thresholds = (torch.full_like(own, fixed) if fixed > 0 else own).float()
    pack((values > thresholds).int() + 2 * (values < -thresholds).int(), frames[:, 4:].view(torch.int32), 2)
    frames[:, :4].view(torch.float32).copy_(thresholds)
    return True


def _add_rows(frames: Tensor, out: Tensor, sign: int) -> None:
    """Each row of `out` (rows, n) is a block, and so is each of `frames` (rows, bytes)."""
    thresholds = sign * frames[:, :4].view(torch.float32)
    codes = unpack(frames[:, 4:].view(torch.int32), out.shape[1], 2)
    out += thresholds * ((codes & 1) - (codes >> 1)).float()
