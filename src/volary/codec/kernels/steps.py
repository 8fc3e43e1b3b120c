"""Values as whole steps of a scale, rounded at random: the loops of codec `int8`.

A block of n values is its scale as fp32 and n steps of a byte, up to a multiple of four bytes. The random numbers are a
hash of how many frames there were, of the value's place in its block and of its bits: equal wherever they are drawn.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from volary.codec._base import FrameCodec
from volary.codec.kernels.blocks import blocks_of, changed_blocks
from volary.codec.kernels.compiled import change, compiled, kernel, read

STEPS = np.float32(127)
SHARE = np.float32(1 / 127)
LEAST = np.float32(2.0**-126)  # scales have an inverse that is finite,
MOST = np.float32(2.679e36)  # and 127 of them are
FRAMES = 2**24  # counted before the count begins anew; as fp32 they are exact
CHANCE = np.float32(2.0**-16)
INFINITE = np.uint32(0x7F800000)
MAGNITUDE = np.uint32(0x7FFFFFFF)
# odd numbers of the hash: of places and frames the golden ratio's and a prime; MurmurHash3's finaliser (Appleby 2011)
OF_PLACE, OF_FRAME = np.uint32(0x9E3779B1), np.uint32(0x27D4EB2F)
FIRST, SECOND = np.uint32(0x85EBCA6B), np.uint32(0xC2B2AE35)


def encode(codec: FrameCodec, values: Tensor, frame: Tensor, memory: Tensor) -> bool:
    """Write the frame of `values` (1, n) and count it in `memory` (1,); whether all values were finite."""
    if compiled(values):
        return bool(_encode(read(values.contiguous()), read(frame, np.uint8), read(memory), codec.block))
    finite = all(_encode_rows(rows, frames, memory) for rows, frames in blocks_of(codec, values.view(-1), frame))
    memory.add_(1).fmod_(FRAMES)
    return finite


def decode(codec: FrameCodec, frame: Tensor, out: Tensor) -> None:
    """Write the values of a frame to `out` (1, n)."""
    if compiled(out):
        change(out, lambda values: _spread(read(frame, np.uint8), values, codec.block, np.float32(1), True))
    else:
        add(codec, frame, out.zero_(), 1)


def add(codec: FrameCodec, frame: Tensor, out: Tensor, sign: int) -> None:
    """Add the values of a frame, times `sign`, to `out` (1, n)."""
    if compiled(out):
        change(out, lambda values: _spread(read(frame, np.uint8), values, codec.block, np.float32(sign), False))
        return
    for rows, frames in changed_blocks(codec, out, frame):
        steps = frames[:, 4 : 4 + rows.shape[1]].view(torch.int8)
        rows.add_(steps * frames[:, :4].view(torch.float32), alpha=sign)


@kernel
def _encode(values: NDArray[Any], frame: NDArray[Any], memory: NDArray[Any], block: int) -> bool:
    finite, at = True, 0
    key = np.uint32(np.uint32(memory[0]) * OF_FRAME)
    memory[0] = (memory[0] + 1) % FRAMES
    for start in range(0, values.size, block):
        part = values[start : start + block]
        steps = frame[at + 4 : at + 4 + (part.size + 3) // 4 * 4]
        scale = frame[at : at + 4].view(np.float32)
        largest = _largest(part.view(np.uint32), frame[at : at + 4].view(np.uint32))
        finite &= bool(largest < INFINITE)
        scale[0] = min(max(scale[0] * SHARE, LEAST), MOST)
        _round(part, np.float32(1) / scale[0], key, steps[: part.size].view(np.int8))
        steps[part.size :] = 0
        at += 4 + steps.size
    return finite


@kernel
def _largest(bits: NDArray[Any], out: NDArray[Any]) -> np.uint32:
    """The largest of magnitudes, whose order is that of their bits; NaN is above all."""
    largest = np.uint32(0)
    for i in range(bits.size):
        largest = max(largest, bits[i] & MAGNITUDE)
    out[0] = largest
    return largest


@kernel
def _round(part: NDArray[Any], steps_each: np.float32, key: np.uint32, out: NDArray[Any]) -> None:
    bits = part.view(np.uint32)
    for i in range(part.size):
        # converted each time: Numba's products of 32 bits have 64
        mixed = bits[i] ^ np.uint32(np.uint32(i) * OF_PLACE + key)
        mixed = np.uint32((mixed ^ (mixed >> np.uint32(16))) * FIRST)
        mixed = np.uint32((mixed ^ (mixed >> np.uint32(13))) * SECOND)
        chance = np.float32(np.int32(mixed >> np.uint32(16))) * CHANCE
        steps = np.floor(part[i] * steps_each + chance)
        steps = steps if steps < STEPS else STEPS
        out[i] = np.int8(np.int32(steps if steps > -STEPS else -STEPS))


@kernel
def _spread(frame: NDArray[Any], out: NDArray[Any], block: int, sign: np.float32, anew: bool) -> None:
    at = 0
    for start in range(0, out.size, block):
        part = out[start : start + block]
        if anew:
            part[:] = 0  # it is in the nearest cache then
        scale = frame[at : at + 4].view(np.float32)[0] * sign
        _add_steps(frame[at + 4 : at + 4 + part.size].view(np.int8), scale, part)
        at += 4 + (part.size + 3) // 4 * 4


@kernel
def _add_steps(steps: NDArray[Any], scale: np.float32, out: NDArray[Any]) -> None:
    for i in range(out.size):
        out[i] += np.float32(steps[i]) * scale


def _encode_rows(values: Tensor, frames: Tensor, memory: Tensor) -> bool:
    """Each row of `values` (rows, n) is a block; frames (rows, bytes): overwritten."""
    largest = values.abs().amax(1, keepdim=True)
    scales = (largest * float(SHARE)).clamp(float(LEAST), float(MOST))
    frames[:, :4].view(torch.float32).copy_(scales)
    steps = torch.floor(values * scales.reciprocal() + _chances(values, memory)).clamp(-127, 127)
    frames[:, 4 : 4 + values.shape[1]] = steps.to(torch.int8).view(torch.uint8)
    frames[:, 4 + values.shape[1] :] = 0
    return bool(torch.isfinite(largest).all())


def _chances(values: Tensor, memory: Tensor) -> Tensor:
    """The random numbers of `_round`, in 64 bits whose lower half counts."""
    half = 0xFFFFFFFF
    places = torch.arange(values.shape[1], device=values.device) * int(OF_PLACE) + memory.long() * int(OF_FRAME)
    mixed = (values.contiguous().view(torch.int32).long() ^ places) & half
    mixed = ((mixed ^ (mixed >> 16)) * int(FIRST)) & half
    mixed = ((mixed ^ (mixed >> 13)) * int(SECOND)) & half
    return (mixed >> 16).float() * float(CHANCE)
