"""One bit a value: its sign (Seide et al., Interspeech 2014: 1-bit stochastic gradient descent)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from volary.codec._base import Encoded, FrameCodec
from volary.codec.none import FullPrecision
from volary.errors import SettingError

if TYPE_CHECKING:
    from torch import Tensor


BLOCK = 1024  # twice as many save 3 % of the bytes, and means of more values fit each of them less


@dataclass(frozen=True, kw_only=True)
class OneBit(FrameCodec):
    """The sign of each value travels, and of each block the means of its positive and of its negative values."""

    block: ClassVar[int] = BLOCK
    section_values: ClassVar[int] = 2**20  # blocks are encoded in one pass each

    warm_up_samples: int = 0  # so many samples of the run's beginning see values travel as they are
    feedback: bool = True  # what signs and means do not tell is added to the next values; off, training is worse

    def __post_init__(self) -> None:
        if self.warm_up_samples < 0:
            raise SettingError(f"warm_up_samples is {self.warm_up_samples}; accepted: 0 and above")

    def at(self, samples: int) -> FrameCodec:
        """Full precision until the warm-up is over."""
        return FullPrecision() if samples < self.warm_up_samples else self

    def frame_bytes(self, rows: int, columns: int) -> int:
        """A bit a value and 8 bytes a block."""
        whole, rest = divmod(rows * columns, BLOCK)
        return whole * (8 + BLOCK // 8) + (8 + 4 * -(-rest // 32) if rest else 0)

    def encode(self, values: Tensor, frame: Tensor, memory: Tensor) -> bool:
        from volary.codec.kernels import signs

        return signs.encode(self, values, frame)

    def encode_with_feedback(self, values: Tensor, residual: Tensor, frame: Tensor, memory: Tensor) -> Encoded:
        """Block by block, each read and written once."""
        from volary.codec.kernels import signs
        from volary.codec.kernels.compiled import compiled

        if not (compiled(values) and residual.is_contiguous()):
            return super().encode_with_feedback(values, residual, frame, memory)
        return signs.encode_with_feedback(self, values, residual, frame)

    def decode(self, frame: Tensor, out: Tensor) -> None:
        """Write the mean that each value's sign chooses."""
        from volary.codec.kernels import signs

        signs.decode(self, frame, out)

    def add(self, frame: Tensor, out: Tensor, sign: int = 1) -> None:
        from volary.codec.kernels import signs

        signs.add(self, frame, out, sign)


CODEC = OneBit
