"""Sufficient factors: of fully connected layers the vectors travel whose products are the gradient, not the products.

Sufficient factor broadcasting (Xie et al., UAI 2016), after COTS HPC and Project Adam: with few samples a worker, two
vectors a sample are fewer values than the matrix.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from volary.codec._base import Codec, Layer, Option
from volary.codec.none import FullPrecision
from volary.errors import SettingError


@dataclass(frozen=True, kw_only=True)
class SufficientFactors(Codec):
    """Factors where they are fewer bytes, all other gradients as they are; equal to the sum to rounding."""

    representation: ClassVar[str] = "factors"
    needs_gradients = True

    neighbours: int | None = None  # others that get a worker's factors in a step, in turn (default: all, exact)

    def __post_init__(self) -> None:
        if self.neighbours is not None and self.neighbours < 1:
            raise SettingError(f"neighbours is {self.neighbours}; accepted: 1 or more, or none for all")

    @property
    def equal(self) -> bool:
        """Equal if every worker receives the factors of all."""
        return self.neighbours is None

    def leaves(self) -> Sequence[Codec]:
        """Some layers travel as they are."""
        return (FullPrecision(), self)

    def fits(self, layer: Layer) -> bool:
        """Whether the layer's gradient is a sum of products."""
        return bool(layer.products)

    def pick(self, layer: Layer, options: Sequence[Option]) -> tuple[Option, str]:
        """Choose what loads a link with fewer bytes."""
        if layer.products is None:
            return options[0], "it is small, or its gradient is no product of vectors"
        return min(options, key=lambda one: one.link_bytes), f"{layer.products:.0f} products a worker"


CODEC = SufficientFactors
