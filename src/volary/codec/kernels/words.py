"""Codes of a few bits in words of 32, by torch: of w words code j * w + i is at the bits of place j of word i."""

from __future__ import annotations

import torch
from torch import Tensor

BITS = 32


def pack(codes: Tensor, words: Tensor, bits: int) -> None:
    """Write codes (rows, n) of so many bits each to `words` (rows, w), int32, of which w * 32 / bits are n or more."""
    rows, columns = codes.shape
    places = torch.zeros(rows, BITS // bits, words.shape[1], dtype=torch.int64, device=codes.device)
    places.view(rows, -1)[:, :columns] = codes
    words.copy_((places << _shifts(words, bits)).sum(1))


def unpack(words: Tensor, columns: int, bits: int) -> Tensor:
    """The codes (rows, columns) of words (rows, w), int32."""
    codes: Tensor = (words[:, None] >> _shifts(words, bits)) & (2**bits - 1)
    return codes.flatten(1)[:, :columns]


def _shifts(like: Tensor, bits: int) -> Tensor:
    """How far the codes of each place are shifted, one below the other."""
    return bits * torch.arange(BITS // bits, device=like.device).view(-1, 1)
