"""PowerSGD: matrices travel as products of two thin ones (Vogels et al. 2019, arXiv:1905.13727)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from volary.codec._base import Encoded, FrameCodec
from volary.codec.none import FullPrecision
from volary.errors import SettingError

if TYPE_CHECKING:
    from torch import Tensor

    from volary.codec.kernels.batches import MatrixBatch


@dataclass(frozen=True, kw_only=True)
class PowerSgd(FrameCodec):
    """A matrix becomes its projection on `rank` directions, found by one power iteration that continues from the last.

    Where that would not be smaller, the values travel as they are.
    """

    by_rows: ClassVar[bool] = True
    feedback = True

    rank: int = 2  # columns of the thin matrices; more are more exact, and more bytes

    def __post_init__(self) -> None:
        if self.rank < 1:
            raise SettingError(f"rank is {self.rank}; accepted: 1 or more")

    def frame_bytes(self, rows: int, columns: int) -> int:
        """Four bytes for each of rank * (rows + columns) values."""
        return 4 * (self.rank * (rows + columns) if self._pays(rows, columns) else rows * columns)

    def memory_values(self, rows: int, columns: int) -> int:
        """The directions that the next iteration begins with."""
        return self.rank * columns if self._pays(rows, columns) else 0

    def encode(self, values: Tensor, frame: Tensor, memory: Tensor) -> bool:
        """One power iteration; the frame has both thin matrices, each column's values together."""
        from volary.codec.kernels import low_rank

        if not self._pays(*values.shape):
            return FullPrecision().encode(values, frame, memory) and bool(values.isfinite().all())
        return low_rank.encode(values, frame, memory)

    def encode_with_feedback(self, values: Tensor, residual: Tensor, frame: Tensor, memory: Tensor) -> Encoded:
        """Encode with feedback in one call, if it is compiled."""
        from volary.codec.kernels import low_rank
        from volary.codec.kernels.compiled import compiled

        if not (self._pays(*values.shape) and compiled(values) and residual.is_contiguous()):
            return super().encode_with_feedback(values, residual, frame, memory)
        return low_rank.encode_with_feedback(values, residual, frame, memory)

    def decode(self, frame: Tensor, out: Tensor) -> None:
        from volary.codec.kernels import low_rank

        if not self._pays(*out.shape):
            FullPrecision().decode(frame, out)
        else:
            low_rank.decode(frame, out)

    def add(self, frame: Tensor, out: Tensor, sign: int = 1) -> None:
        from volary.codec.kernels import low_rank

        if not self._pays(*out.shape):
            FullPrecision().add(frame, out, sign)
        else:
            low_rank.add(frame, out, sign)

    def encode_each(
        self, batch: MatrixBatch, values: Tensor, residual: Tensor, frames: Tensor, memory: Tensor
    ) -> Encoded:
        """Encode all matrices with feedback in one call, if it is compiled."""
        from volary.codec.kernels import low_rank_batches
        from volary.codec.kernels.compiled import compiled

        if not compiled(values):
            return super().encode_each(batch, values, residual, frames, memory)
        return low_rank_batches.encode_with_feedback(batch, values, residual, frames, memory)

    def decode_each(self, batch: MatrixBatch, frames: Tensor, out: Tensor) -> None:
        """Decode all in one call, if it is compiled."""
        from volary.codec.kernels import low_rank_batches
        from volary.codec.kernels.compiled import compiled

        if compiled(out):
            low_rank_batches.decode(batch, frames, out)
        else:
            super().decode_each(batch, frames, out)

    def add_each(self, batch: MatrixBatch, frames: Tensor, out: Tensor) -> None:
        """Add all in one call, if it is compiled."""
        from volary.codec.kernels import low_rank_batches
        from volary.codec.kernels.compiled import compiled

        if compiled(out):
            low_rank_batches.add(batch, frames, out)
        else:
            super().add_each(batch, frames, out)

    def _pays(self, rows: int, columns: int) -> bool:
        """Whether thin matrices are smaller than the matrix."""
        return self.rank * (rows + columns) < rows * columns


CODEC = PowerSgd
