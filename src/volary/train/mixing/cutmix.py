"""CutMix: a rectangle of an image comes from another one (Yun et al. 2019, arXiv:1905.04899)."""

from __future__ import annotations

from dataclasses import dataclass
from math import sqrt
from typing import TYPE_CHECKING

from volary.session.checks import require

if TYPE_CHECKING:
    from random import Random

    from torch import Tensor


@dataclass(frozen=True, kw_only=True)
class CutMix:
    """A rectangle, the same one in all images of a batch, is another image's; inputs are images."""

    alpha: float = 1.0  # of the beta distribution that the share of the image that stays is drawn from

    def __post_init__(self) -> None:
        require(self.alpha > 0, "alpha", self.alpha, "above 0")

    def refusal(self, input_shape: tuple[int, ...]) -> str:
        if len(input_shape) == 3:
            return ""
        return f"it takes images (channels, height, width), and the data's samples have shape {input_shape}"

    def mixed(self, inputs: Tensor, others: Tensor, share: float, draw: Random) -> tuple[Tensor, float]:
        height, width = inputs.shape[-2:]
        side = sqrt(1 - share)
        top, bottom = _cut(height, side, draw)
        left, right = _cut(width, side, draw)
        found = inputs.clone()
        found[..., top:bottom, left:right] = others[..., top:bottom, left:right]
        return found, 1 - (bottom - top) * (right - left) / (height * width)


def _cut(length: int, side: float, draw: Random) -> tuple[int, int]:
    """Where a rectangle of this `side`, a share of the length, begins and ends; around any place, and cut off there."""
    half, centre = int(length * side) // 2, draw.randrange(length)
    return max(0, centre - half), min(length, centre + half)


MIXING = CutMix
