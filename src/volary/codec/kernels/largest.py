"""The largest values of each block: the loops of codecs `topk` and `dct`.

A block of which k values are chosen is their offsets, ascending, as 16 bits each, and 16 bits more if k is odd, which
align what follows: the values.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from volary.codec.kernels.blocks import blocks_of, changed_blocks
from volary.codec.kernels.compiled import change, compiled, kernel, read

if TYPE_CHECKING:
    from volary.codec.topk import TopK

MAGNITUDE = np.uint32(0x7FFFFFFF)  # all bits but the sign: as integers they are in the order of the magnitudes
INFINITE = 0x7F800000  # of infinity; above it is what is not a number
NARROWED = 4  # times as many values as wanted may be looked at in detail: fewer would take more passes over all

Words = NDArray[np.uint32]
Offsets = NDArray[np.uint16]


def encode(codec: TopK, values: Tensor, frame: Tensor) -> bool:
    """Write the frame of `values` (1, n); of equal magnitudes the first are chosen. Whether all were finite."""
    parts = blocks_of(codec, values.view(-1), frame)
    return all(encode_rows(rows, frames, codec.count(rows.shape[1])) for rows, frames in parts)


def encode_rows(values: Tensor, frames: Tensor, count: int) -> bool:
    """The same where each row of `values` (rows, n) is a block; frames (rows, bytes): overwritten."""
    if compiled(values):
        words = read(values.contiguous(), np.uint32)
        return bool(_encode(words, read(frames, np.uint32), values.shape[1], count))
    return _encode_by_torch(values, frames, count)


def add(codec: TopK, frame: Tensor, out: Tensor, sign: int) -> None:
    """Add the values of a frame, times `sign`, to `out` (1, n)."""
    for rows, frames in changed_blocks(codec, out, frame):
        count = codec.count(rows.shape[1])
        if compiled(out):
            words, block = read(frames, np.uint32), rows.shape[1]
            change(rows, partial(_scatter, words, block=block, count=count, sign=np.float32(sign)))
        else:
            _scatter_by_torch(frames, rows, sign, count)


@kernel
def _encode(values: Words, frame: Words, block: int, count: int) -> bool:
    at, threshold = 0, 0
    offsets, near = np.empty(block, np.uint16), np.empty(block, np.uint32)
    size, most = (count + 1) // 2 + count, min(NARROWED * count, count + block // 8)
    for start in range(0, values.size, block):
        part = values[start : start + block]
        if _at_least(part, INFINITE) > 0:
            return False
        threshold = _threshold(part, count, most, threshold)
        found = _narrow(part, threshold, offsets, near)
        _write(part, offsets[:found], near[:found], count, frame[at : at + size])
        at += size
    return True


@kernel
def _at_least(values: Words, threshold: int) -> int:
    """How many magnitudes there are of at least a threshold."""
    count = 0
    for place in range(values.size):
        count += (values[place] & MAGNITUDE) >= np.uint32(threshold)
    return count


@kernel
def _threshold(values: Words, least: int, most: int, guess: int) -> int:
    """A threshold that `least` to `most` magnitudes reach, by bisection; more than `most` only if some are equal."""
    low, high, middle = 0, INFINITE, guess
    while high - low > 1:
        count = _at_least(values, middle)
        if count < least:
            high = middle
        else:
            low = middle
            if count <= most:
                break
        middle = (low + high) // 2
    return low


@kernel
def _narrow(values: Words, threshold: int, offsets: Offsets, near: Words) -> int:
    """Write offset and magnitude of the values that reach the threshold; returns how many they are."""
    found = 0
    for place in range(values.size):
        offsets[found] = place  # always written: a branch here would be guessed wrong too often
        found += (values[place] & MAGNITUDE) >= np.uint32(threshold)
    for place in range(found):
        near[place] = values[offsets[place]] & MAGNITUDE
    return found


@kernel
def _write(values: Words, offsets: Offsets, near: Words, wanted: int, frame: Words) -> None:
    """Write a block's frame, from those values that can be among the largest; near: their magnitudes."""
    threshold = _threshold(near, wanted, wanted, 0)
    equal = wanted - _at_least(near, threshold + 1)
    chosen = 0
    for place in range(near.size):
        is_equal = near[place] == threshold
        offsets[chosen] = offsets[place]  # nor is there a branch here
        chosen += (near[place] > threshold) | (is_equal & (equal > 0))
        equal -= is_equal
    where, what = frame.view(np.uint16), frame[frame.size - wanted :]
    where[2 * (frame.size - wanted) - 1] = 0  # what aligns the values, if their count is odd
    for place in range(wanted):
        where[place], what[place] = offsets[place], values[offsets[place]]


@kernel
def _scatter(frame: Words, out: NDArray[np.float32], block: int, count: int, sign: np.float32) -> None:
    at, size = 0, (count + 1) // 2 + count
    for start in range(0, out.size, block):
        part = out[start : start + block]
        where, what = frame[at : at + size].view(np.uint16), frame[at + size - count : at + size].view(np.float32)
        for chosen in range(count):
            if where[chosen] < block:  # a damaged frame does not write elsewhere
                part[where[chosen]] += sign * what[chosen]
        at += size


def _encode_by_torch(values: Tensor, frames: Tensor, count: int) -> bool:
    magnitudes = values.view(torch.int32) & int(MAGNITUDE)
    if bool((magnitudes >= INFINITE).any()):
        return False
    least = magnitudes.topk(count, sorted=False).values.amin(1, keepdim=True)
    above, equal = magnitudes > least, magnitudes == least
    chosen = above | (equal & (equal.cumsum(1) <= count - above.sum(1, keepdim=True)))
    offsets = chosen.nonzero()[:, 1].view(len(values), count)
    frames.zero_()
    frames.view(torch.int16)[:, :count] = offsets.to(torch.int16)
    frames.view(torch.float32)[:, -count:] = values.gather(1, offsets)
    return True


def _scatter_by_torch(frames: Tensor, out: Tensor, sign: int, count: int) -> None:
    """Each row of `out` (rows, n) is a block, and so is each of `frames` (rows, bytes)."""
    offsets, values = frames.view(torch.int16)[:, :count].long(), frames.view(torch.float32)[:, -count:]
    inside = (offsets >= 0) & (offsets < out.shape[1])  # a damaged frame does not write elsewhere
    out.scatter_add_(1, offsets.where(inside, 0), torch.where(inside, sign * values, 0.0))
