"""Two bits for each of the largest values: its sign, and one of two magnitudes of its block.

Of a block of which k values are chosen come their offsets as of `largest`, the smaller and the larger magnitude, as
fp32, and then w = ceil(k / 16) words: bits 2j and 2j + 1 of word i are those of the chosen value j * w + i, whether
its magnitude is the larger one, and whether it is negative. Magnitudes are the means of those up to the mean of all,
and of those above it: of all that two could be, they are the nearest to the values on each side.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from volary.codec.kernels import largest
from volary.codec.kernels.blocks import blocks_of
from volary.codec.kernels.words import pack, unpack

if TYPE_CHECKING:
    from torch import Tensor

    from volary.codec.topk import TopK


def encode(codec: TopK, exact: TopK, values: Tensor, frame: Tensor) -> bool:
    """Write the frame of `values` (1, n), as `exact` chooses them. Whether all were finite."""
    flat, whole = values.view(-1), frame.new_empty(exact.frame_bytes(*values.shape))
    if not largest.encode(exact, values, whole):
        return False
    parts = zip(blocks_of(exact, flat, whole), blocks_of(codec, flat, frame), strict=True)
    for (rows, wide), (_, narrow) in parts:
        _narrow(wide, narrow, codec.count(rows.shape[1]))
    return True


def add(codec: TopK, exact: TopK, frame: Tensor, out: Tensor, sign: int) -> None:
    """Add the values of a frame, times `sign`, to `out` (1, n)."""
    flat, whole = out.view(-1), frame.new_empty(exact.frame_bytes(*out.shape))
    parts = zip(blocks_of(exact, flat, whole), blocks_of(codec, flat, frame), strict=True)
    for (rows, wide), (_, narrow) in parts:
        _widen(narrow, wide, codec.count(rows.shape[1]))
    largest.add(exact, whole, out, sign)


def _narrow(wide: Tensor, narrow: Tensor, count: int) -> None:
    """Write to `narrow` (rows, bytes) what rows of 32-bit values `wide` (rows, bytes) become."""
    start = (count + 1) // 2
    words, values = narrow.view(torch.int32), wide.view(torch.float32)[:, start:]
    words[:, :start] = wide.view(torch.int32)[:, :start]
    magnitudes = values.abs().double()  # sums of the largest values stay finite
    large = magnitudes > magnitudes.mean(1, keepdim=True)
    for place, side in enumerate((~large, large)):
        mean = (magnitudes * side).sum(1) / side.sum(1).clamp(min=1)
        words.view(torch.float32)[:, start + place] = mean.float()
    pack(large.int() + 2 * (values < 0).int(), words[:, start + 2 :], 2)


def _widen(narrow: Tensor, wide: Tensor, count: int) -> None:
    """The other way, to `wide`."""
    start = (count + 1) // 2
    words = narrow.view(torch.int32)
    wide.view(torch.int32)[:, :start] = words[:, :start]
    smaller, larger = words.view(torch.float32)[:, start : start + 2].split(1, dim=1)
    codes = unpack(words[:, start + 2 :], count, 2)
    wide.view(torch.float32)[:, start:] = torch.where(codes & 1 > 0, larger, smaller) * (1 - (codes & 2))
