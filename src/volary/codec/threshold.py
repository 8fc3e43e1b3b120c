"""Threshold: what is beyond t travels as t or -t, in 2 bits a value (Strom 2015; MXNet's 2-bit compression)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal

from volary.codec._base import FrameCodec
from volary.errors import SettingError

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True, kw_only=True)
class Threshold(FrameCodec):
    """Values beyond the threshold travel as plus or minus the threshold; the rest waits until it has grown."""

    block: ClassVar[int] = 1024
    feedback = True

    threshold: float | Literal["auto"] = "auto"  # auto: 0.9 times the root mean square of each block of 1024 values

    def __post_init__(self) -> None:
        if self.threshold != "auto" and not 1e-30 <= self.threshold <= 1e30:  # as fp32 it is neither 0 nor infinite
            raise SettingError(f"threshold is {self.threshold}; accepted: auto, or from 1e-30 to 1e30")

    def frame_bytes(self, rows: int, columns: int) -> int:
        """Two bits a value, and four bytes a block."""
        blocks, rest = divmod(rows * columns, self.block)
        return blocks * (4 + self.block // 4) + (4 + 4 * -(-rest // 16) if rest else 0)

    def encode(self, values: Tensor, frame: Tensor, memory: Tensor) -> bool:
        """Write which values are beyond the threshold."""
        from volary.codec.kernels import two_bits

        return two_bits.encode(self, values, frame, 0.0 if self.threshold == "auto" else self.threshold)

    def decode(self, frame: Tensor, out: Tensor) -> None:
        self.add(frame, out.zero_())

    def add(self, frame: Tensor, out: Tensor, sign: int = 1) -> None:
        """Add the threshold or its negative where one travelled."""
        from volary.codec.kernels import two_bits

        two_bits.add(self, frame, out, sign)


CODEC = Threshold
