"""No codec: values travel as they are."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True, kw_only=True)
class Exact:
    """Full precision: what is sent is what was computed."""

    lossless: ClassVar[bool] = True
    by_rows: ClassVar[bool] = False
    block: ClassVar[int] = 1
    feedback: ClassVar[bool] = False
    momentum: ClassVar[float] = 0.0

    def at(self, samples: int) -> Exact:
        """Always the same."""
        return self

    def frame_bytes(self, rows: int, columns: int) -> int:
        """Four bytes a value."""
        return 4 * rows * columns

    def memory_values(self, rows: int, columns: int) -> int:
        """Nothing is remembered."""
        return 0

    def encode(self, values: Tensor, frame: Tensor, memory: Tensor) -> bool:
        """Copy them. Values that are not finite travel like all others."""
        import torch

        frame.view(torch.float32).view(values.shape).copy_(values)
        return True

    def decode(self, frame: Tensor, out: Tensor) -> None:
        """Copy them."""
        import torch

        out.copy_(frame.view(torch.float32).view(out.shape))

    def add(self, frame: Tensor, out: Tensor, sign: int = 1) -> None:
        """Add them."""
        import torch

        out.add_(frame.view(torch.float32).view(out.shape), alpha=sign)


CODEC = Exact
