"""Discrete cosine transforms: the largest coefficients of each tile of a matrix travel.

With a residual that decays a little before each gradient is added it is a momentum of which only what changes quickly
travels: DeMo (Peng, Quesnelle and Kingma 2024, arXiv:2411.19870).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from volary.codec._base import FrameCodec
from volary.errors import SettingError

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True, kw_only=True)
class Dct(FrameCodec):
    """A share of the coefficients of each tile of 64 x 64 values travels, exactly; the rest waits for its turn."""

    by_rows: ClassVar[bool] = True
    side: ClassVar[int] = 64  # of a tile, in rows and columns; those at the edges are smaller
    feedback = True

    ratio: float = 1 / 128  # share of coefficients that travel, at least one of a tile
    decay: float = 0.999  # the factor of what waits, before the next values are added to it

    def __post_init__(self) -> None:
        if not 0 < self.ratio <= 1:
            raise SettingError(f"ratio is {self.ratio}; accepted: above 0, up to 1")
        if not 0 < self.decay <= 1:
            raise SettingError(f"decay is {self.decay}; accepted: above 0, up to 1")

    def frame_bytes(self, rows: int, columns: int) -> int:
        """Six bytes a coefficient that travels, as `topk`."""
        (strips, low), (tiles, narrow) = divmod(rows, self.side), divmod(columns, self.side)
        whole = tiles * self._bytes(self.side * self.side) + self._bytes(self.side * narrow)
        return strips * whole + tiles * self._bytes(low * self.side) + self._bytes(low * narrow)

    def encode(self, values: Tensor, frame: Tensor, memory: Tensor) -> bool:
        """Transform, choose and pack; of equal magnitudes the first."""
        from volary.codec.kernels import cosines

        return cosines.encode(self, values, frame)

    def decode(self, frame: Tensor, out: Tensor) -> None:
        self.add(frame, out.zero_())

    def add(self, frame: Tensor, out: Tensor, sign: int = 1) -> None:
        from volary.codec.kernels import cosines

        cosines.add(self, frame, out, sign)

    def count(self, values: int) -> int:
        """How many coefficients of a tile of so many values travel."""
        return min(values, max(1, round(self.ratio * values)))

    def _bytes(self, values: int) -> int:
        """Bytes of a tile's frame."""
        count = self.count(values)
        return 4 * ((count + 1) // 2 + count)


CODEC = Dct
