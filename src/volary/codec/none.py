"""No codec: values travel as they are."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from volary.codec._base import FrameCodec, Layer

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True, kw_only=True)
class FullPrecision(FrameCodec):
    """Full precision: what is sent is what was computed."""

    representation: ClassVar[str] = "exact"
    lossless: ClassVar[bool] = True

    def fits(self, layer: Layer) -> bool:
        return True

    def frame_bytes(self, rows: int, columns: int) -> int:
        return 4 * rows * columns

    def encode(self, values: Tensor, frame: Tensor, memory: Tensor) -> bool:
        """Copy them. Values that are not finite travel like all others."""
        import torch

        frame.view(torch.float32).view(values.shape).copy_(values)
        return True

    def decode(self, frame: Tensor, out: Tensor) -> None:
        import torch

        out.copy_(frame.view(torch.float32).view(out.shape))

    def add(self, frame: Tensor, out: Tensor, sign: int = 1) -> None:
        import torch

        out.add_(frame.view(torch.float32).view(out.shape), alpha=sign)


CODEC = FullPrecision
