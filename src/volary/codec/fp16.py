"""Half precision: 16 bits a value, 5 of them the exponent (IEEE 754 binary16)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from volary.codec._base import FrameCodec

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True, kw_only=True)
class Fp16(FrameCodec):
    """Each value travels rounded to 11 bits; one above 65504 as 65504, one below 6e-8 as 6e-8 or 0."""

    block: ClassVar[int] = 2

    feedback: bool = False  # the rounding error is added to the next values: for gradients beyond what 16 bits hold

    def frame_bytes(self, rows: int, columns: int) -> int:
        """Two bytes a value, up to a multiple of four."""
        return 4 * -(-rows * columns // 2)

    def encode(self, values: Tensor, frame: Tensor, memory: Tensor) -> bool:
        """Write the values rounded to the nearest."""
        from volary.codec.kernels import halves

        return halves.encode(values, frame, halves.FP16)

    def decode(self, frame: Tensor, out: Tensor) -> None:
        from volary.codec.kernels import halves

        halves.decode(frame, out, halves.FP16)

    def add(self, frame: Tensor, out: Tensor, sign: int = 1) -> None:
        from volary.codec.kernels import halves

        halves.add(frame, out, halves.FP16, sign)


CODEC = Fp16
