"""Sufficient factors: of fully connected layers the vectors travel whose products are the gradient, not the products.

Sufficient factor broadcasting (Xie et al., UAI 2016), after COTS HPC and Project Adam: with few samples a worker, two
vectors a sample are fewer values than the matrix.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from volary.errors import SettingError
from volary.exchange._routed import Routed

if TYPE_CHECKING:
    from torch.nn import Parameter

    from volary.codec._base import Codec
    from volary.exchange._seen import Decision, Seen
    from volary.exchange._way import Way


@dataclass(frozen=True, kw_only=True)
class SufficientFactors(Routed):
    """Factors where they are fewer bytes, all other gradients summed as they are; equal to the sum to rounding."""

    neighbours: int | None = None  # others that get a worker's factors in a step, in turn (default: all, exact)
    decides: ClassVar[bool] = True
    follows: ClassVar[bool] = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.neighbours is not None and self.neighbours < 1:
            raise SettingError(f"neighbours is {self.neighbours}; accepted: 1 or more, or none for all")

    @property
    def equal(self) -> bool:
        """Whether everybody hears the same."""
        return self.neighbours is None

    def why_not(self, codec: Codec) -> str:
        """Why it does not go with `codec`; empty if it does."""
        if not codec.lossless:
            return "factors are exact and take no codec; nearest: codec=none, or exchange=auto with allow"
        return "" if self.route != "shared" else "in shared memory nothing travels; nearest: route=auto"

    def ways(self, codec: Codec, parameters: Mapping[str, Parameter]) -> dict[str, Way]:
        """Nothing is known yet: all as it is."""
        return {}

    def named(self, way: str) -> Way:
        """The way called so."""
        from volary.exchange._way import EXACT, Factors

        return Factors(self.neighbours) if way == Factors.name else EXACT

    def decide(self, seen: Seen) -> list[Decision]:
        """Factors for each layer whose gradient is a product and more bytes than its factors."""
        from volary.exchange._options import as_factors, as_it_is
        from volary.exchange._seen import Decision
        from volary.exchange._way import Factors

        decisions = []
        work = seen.work({})
        for layer in seen.layers:
            best, why = as_it_is(layer, seen.links), "it is small, or its gradient is no product of vectors"
            if layer.products is not None:
                factors = as_factors(layer, Factors(self.neighbours), seen.links, work)
                why = f"{layer.products:.0f} products a worker"
                if layer.products and factors.link_bytes < best.link_bytes:
                    best = factors
            decisions.append(Decision(layer.names, best.way.name, best.link_bytes, best.seconds, why))
        return decisions


EXCHANGE = SufficientFactors
