"""Weights with which a deconvolution enlarges images by bilinear interpolation, as Caffe has them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from volary.errors import SettingError
from volary.network.fillers._base import Filler

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True, kw_only=True)
class BilinearFiller(Filler):
    """The same window for each pair of channels."""

    def fill(self, values: Tensor) -> None:
        """Overwrite a weight (inputs, outputs, side, side). Raises SettingError for windows that are not square."""
        import torch

        if values.dim() != 4 or values.shape[-1] != values.shape[-2]:
            raise SettingError(f"bilinear fills square windows of images; the weight is {tuple(values.shape)}")
        side = values.shape[-1]
        half = -(-side // 2)
        middle = (2 * half - 1 - half % 2) / (2 * half)
        ways = 1 - (torch.arange(side, dtype=values.dtype, device=values.device) / half - middle).abs()
        with torch.no_grad():
            values.copy_(torch.outer(ways, ways).expand_as(values))


FILLER = BilinearFiller
