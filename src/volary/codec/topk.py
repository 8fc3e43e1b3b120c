"""Top-k: only the largest values travel (Aji & Heafield 2017, arXiv:1704.05021; Lin et al. 2018, arXiv:1712.01887).

Of differences of parameters, with a decay of what waits and 2 bits a value, it is SparseLoCo (Sarfi et al. 2025,
arXiv:2508.15706).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar, Literal

from volary.codec._base import FrameCodec
from volary.errors import SettingError

if TYPE_CHECKING:
    from torch import Tensor

FIRST_RATIO = 0.25  # of a warm-up; each stage has a quarter of the one before (Lin et al. 2018, section 3.3)


@dataclass(frozen=True, kw_only=True)
class TopK(FrameCodec):
    """The values largest in magnitude of each block travel; the rest waits for its turn."""

    block: ClassVar[int] = 2**14
    feedback = True

    ratio: float = 0.01  # share of values that travel, at least one of a block
    bits: Literal[32, 2] = 32  # of each: exactly, or its sign and one of two magnitudes of its block
    decay: float = 1.0  # the factor of values that wait, before the next ones are added to them
    momentum: float = 0.0  # of values that wait (momentum correction); the optimizer then has none of its own
    warm_up_samples: int = 0  # over so many samples the ratio falls in stages: 0.25, 0.0625, ... until `ratio`

    def __post_init__(self) -> None:
        if not 0 < self.ratio <= 1:
            raise SettingError(f"ratio is {self.ratio}; accepted: above 0, up to 1")
        if not 0 <= self.momentum < 1:
            raise SettingError(f"momentum is {self.momentum}; accepted: from 0 to below 1")
        if not 0 < self.decay <= 1:
            raise SettingError(f"decay is {self.decay}; accepted: above 0, up to 1")
        if self.momentum and self.decay < 1:
            raise SettingError(
                f"momentum is {self.momentum} and decay is {self.decay}, of which each makes values that wait a "
                "momentum; accepted: one of them"
            )
        if self.warm_up_samples < 0:
            raise SettingError(f"warm_up_samples is {self.warm_up_samples}; accepted: 0 or more")

    def at(self, samples: int) -> TopK:
        """The same with a larger ratio while it warms up, in stages of as many samples each."""
        if samples >= self.warm_up_samples:
            return self
        stages = 1
        while FIRST_RATIO / 4**stages > self.ratio:
            stages += 1
        ratio = FIRST_RATIO / 4 ** (samples * stages // self.warm_up_samples)
        return replace(self, ratio=max(ratio, self.ratio), warm_up_samples=0)

    def frame_bytes(self, rows: int, columns: int) -> int:
        """Six bytes a value that travels; of two bits two and a quarter, and eight a block."""
        blocks, rest = divmod(rows * columns, self.block)
        return blocks * self._bytes(self.block) + self._bytes(rest)

    def encode(self, values: Tensor, frame: Tensor, memory: Tensor) -> bool:
        """Choose and pack; of equal magnitudes the first."""
        from volary.codec.kernels import largest, two_magnitudes

        if self.bits == 2:
            return two_magnitudes.encode(self, self._exact, values, frame)
        return largest.encode(self, values, frame)

    def decode(self, frame: Tensor, out: Tensor) -> None:
        self.add(frame, out.zero_())

    def add(self, frame: Tensor, out: Tensor, sign: int = 1) -> None:
        from volary.codec.kernels import largest, two_magnitudes

        if self.bits == 2:
            two_magnitudes.add(self, self._exact, frame, out, sign)
        else:
            largest.add(self, frame, out, sign)

    def count(self, values: int) -> int:
        """How many values of a block of so many travel."""
        return min(values, max(1, round(self.ratio * values)))

    @property
    def _exact(self) -> TopK:
        """The same whose values travel exactly."""
        return replace(self, bits=32)

    def _bytes(self, values: int) -> int:
        """Bytes of the frame of a block of so many: for each that travels a 16-bit offset, aligned, and its bits."""
        count = self.count(values)
        if self.bits == 2:
            return 4 * ((count + 1) // 2 + 2 + -(-count // 16)) if count else 0
        return 4 * ((count + 1) // 2 + count)


CODEC = TopK
