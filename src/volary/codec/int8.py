"""Eight bits a value, rounded at random so that nothing is lost on average (Alistarh et al. 2017, arXiv:1610.02132)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from volary.codec._base import FrameCodec

if TYPE_CHECKING:
    from torch import Tensor

BLOCK = 512  # its scale is 0.8 % of the bytes


@dataclass(frozen=True, kw_only=True)
class Int8(FrameCodec):
    """Each value travels as a number of steps; the largest of its block, in magnitude, is 127 of them."""

    block: ClassVar[int] = BLOCK
    section_values: ClassVar[int] = 2**18  # blocks are encoded in one pass each

    feedback: bool = False  # what rounding took is added to the next values; it is right on average without, too

    def frame_bytes(self, rows: int, columns: int) -> int:
        """A byte a value, up to a multiple of four, and 4 bytes a block."""
        whole, rest = divmod(rows * columns, BLOCK)
        return whole * (4 + BLOCK) + (4 + 4 * -(-rest // 4) if rest else 0)

    def memory_values(self, rows: int, columns: int) -> int:
        """The count of frames so far: each is rounded by other random numbers."""
        return 1

    def encode(self, values: Tensor, frame: Tensor, memory: Tensor) -> bool:
        from volary.codec.kernels import steps

        return steps.encode(self, values, frame, memory)

    def decode(self, frame: Tensor, out: Tensor) -> None:
        from volary.codec.kernels import steps

        steps.decode(self, frame, out)

    def add(self, frame: Tensor, out: Tensor, sign: int = 1) -> None:
        from volary.codec.kernels import steps

        steps.add(self, frame, out, sign)


CODEC = Int8
