"""Brain floats: 16 bits a value, 8 of them the exponent, as fp32 has (Kalamkar et al. 2019, arXiv:1905.12322)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from volary.codec._base import FrameCodec

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True, kw_only=True)
class Bf16(FrameCodec):
    """Each value travels rounded to 8 bits, whatever its size."""

    block: ClassVar[int] = 2

    feedback: bool = False  # what was rounded off is added to the next values; it is 0.4 % of a value at most

    def frame_bytes(self, rows: int, columns: int) -> int:
        """Two bytes a value, up to a multiple of four."""
        return 4 * -(-rows * columns // 2)

    def encode(self, values: Tensor, frame: Tensor, memory: Tensor) -> bool:
        """Write the values rounded to the nearest."""
        from volary.codec.kernels import halves

        return halves.encode(values, frame, halves.BF16)

    def decode(self, frame: Tensor, out: Tensor) -> None:
        from volary.codec.kernels import halves

        halves.decode(frame, out, halves.BF16)

    def add(self, frame: Tensor, out: Tensor, sign: int = 1) -> None:
        from volary.codec.kernels import halves

        halves.add(frame, out, halves.BF16, sign)


CODEC = Bf16
