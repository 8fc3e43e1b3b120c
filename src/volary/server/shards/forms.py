"""Forms of a PUSH's payload: values as they are, a codec's frames, or factors to be multiplied."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import torch

from volary.codec.kernels.batches import MatrixBatch
from volary.server.protocol.header import Form
from volary.server.protocol.sections import of_slice, stages

if TYPE_CHECKING:
    from torch import Tensor

    from volary.codec._base import FrameCodec

BLOCK_VALUES = 2**16  # that are added up at once: they stay in the cache from one contribution to the next


@dataclass(frozen=True)
class SliceShape:
    """The shape of a slice's values: how many each part has, in rows of which width, and the type of all.

    added: contributions are added up; else one of them stands for all. codec: that workers push them with, in any stage
    of its warm-up; None: none.
    """

    lengths: tuple[int, ...]
    widths: tuple[int, ...]
    dtype: torch.dtype = torch.float32
    added: bool = True
    codec: FrameCodec | None = None

    @cached_property
    def size(self) -> int:
        """The number of values."""
        return sum(self.lengths)

    @cached_property
    def size_bytes(self) -> int:
        """Bytes of the values as they are."""
        return self.size * self.dtype.itemsize


Pushed = tuple[Form, "Tensor"]  # and what came, (bytes,) of uint8


class Forms:
    """The forms of values of slices of these shapes, as they travel."""

    def __init__(self, shapes: dict[int, SliceShape]) -> None:
        self.shapes = shapes
        self._frames: dict[tuple[int, int], tuple[FrameCodec, MatrixBatch]] = {}
        for number, shape in shapes.items():
            for one in stages(shape.codec) if shape.codec is not None else ():
                batch = MatrixBatch(one, of_slice(shape.lengths, shape.widths, one).shapes)
                self._frames[number, batch.frame_bytes] = one, batch

    @property
    def most_bytes(self) -> int:
        """The size in bytes of the largest contribution in any form."""
        frames = (length for _, length in self._frames)
        return max([*(shape.size_bytes for shape in self.shapes.values()), *frames], default=0)

    def why_not(self, number: int, form: Form, length: int) -> str:
        """Why so many bytes in this form are no contribution to a slice; empty if they are."""
        shape = self.shapes[number]
        if form is Form.EXACT and length != shape.size_bytes:
            return f"{length} bytes for slice {number}; accepted: {shape.size_bytes}"
        if form is Form.ENCODED and (number, length) not in self._frames:
            return f"{length} bytes are no frame of slice {number} by its codec"
        if form is Form.FACTORS and (len(shape.lengths) > 1 or length % self._factor_bytes(number)):
            return f"{length} bytes are no factors of slice {number}"
        return "a difference is never pushed" if form is Form.DIFFERENCE else ""

    def total(self, number: int, pushed: Sequence[Pushed], out: Tensor) -> Tensor:
        """The sum of contributions, in their order, (size,): written to `out`, but for a single one that is exact."""
        if not self.shapes[number].added:
            pushed = pushed[:1]
        exact = [one.view(out.dtype) for form, one in pushed if form is Form.EXACT]
        if len(exact) == len(pushed):
            return exact[0] if len(exact) == 1 else _added(exact, out)
        first = True
        for form, one in pushed:
            self._add(number, form, one, out, first=first)
            first = False
        return out

    def _add(self, number: int, form: Form, one: Tensor, out: Tensor, *, first: bool) -> None:
        if form is Form.EXACT:
            values = one.view(out.dtype)
            out.copy_(values) if first else out.add_(values)
        elif form is Form.ENCODED:
            codec, batch = self._frames[number, one.numel()]
            codec.decode_each(batch, one, out) if first else codec.add_each(batch, one, out)
        else:
            self._multiply(number, one, out, first=first)

    def _multiply(self, number: int, one: Tensor, out: Tensor, *, first: bool) -> None:
        """Form rows of a weight's gradient: a row of factors is its errors, and the inputs they are multiplied with."""
        (width,) = self.shapes[number].widths
        rows = out.numel() // width
        factors = one.view(out.dtype).view(-1, rows + width)
        product = out.view(rows, width)
        torch.addmm(product, factors[:, :rows].t(), factors[:, rows:], beta=0 if first else 1, out=product)

    def _factor_bytes(self, number: int) -> int:
        shape = self.shapes[number]
        return (shape.size // shape.widths[0] + shape.widths[0]) * shape.dtype.itemsize


def _added(exact: Sequence[Tensor], out: Tensor) -> Tensor:
    for start in range(0, out.numel(), BLOCK_VALUES):
        first, second, *others = (one[start : start + BLOCK_VALUES] for one in exact)
        block = torch.add(first, second, out=out[start : start + BLOCK_VALUES])
        for other in others:
            block.add_(other)
    return out


def try_out(codec: FrameCodec) -> None:
    """Compile what is compiled at its first use: now, when nobody waits, as compiling stops all threads."""
    values = torch.ones(2, 32) if codec.by_rows else torch.ones(1, 64)
    frame = torch.empty(codec.frame_bytes(*values.shape), dtype=torch.uint8)
    codec.encode(values, frame, torch.zeros(codec.memory_values(*values.shape)))
    batch = MatrixBatch(codec, [(len(values), values.shape[1])])
    codec.decode_each(batch, frame, values.view(-1))
    codec.add_each(batch, frame, values.view(-1))
