"""Runs torch operations over values and their frame: all whole blocks at once, as rows, then the rest as one."""

from __future__ import annotations

from collections.abc import Iterator

from torch import Tensor

from volary.codec._base import FrameCodec


def blocks_of(codec: FrameCodec, values: Tensor, frame: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
    """(blocks (rows, n), their frames (rows, bytes)): views of `values` (numel,) and of their frame (bytes,)."""
    rows, rest = divmod(values.numel(), codec.block)
    cut, end = values.numel() - rest, codec.frame_bytes(1, values.numel() - rest)
    if rows:
        yield values[:cut].view(rows, -1), frame[:end].view(rows, -1)
    if rest:
        yield values[cut:].view(1, -1), frame[end:].view(1, -1)


def changed_blocks(codec: FrameCodec, out: Tensor, frame: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
    """The same for `out` (1, numel) and its frame (bytes,): changes of the blocks change it."""
    yield from blocks_of(codec, out.view(-1), frame)
