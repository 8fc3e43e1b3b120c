"""Gradients as factors: the vectors whose products they are the sum of (Xie et al., UAI 2016)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from volary.exchange.representations._base import VALUE_BYTES, Representation

if TYPE_CHECKING:
    from volary.codec._base import Layer
    from volary.comm.sums.route import Memory
    from volary.exchange.choice.costs import LinkCosts, WorkTimes
    from volary.exchange.compression.push_encoding import PushEncoding
    from volary.exchange.gradients.plan import BucketPlan
    from volary.exchange.representations._base import CodedSums, Piece, Site
    from volary.server.client.values import PushedValues


@dataclass(frozen=True)
class Factors(Representation):
    """Each worker sends factors to others, or servers, which multiply them. neighbours: how many others; None: all."""

    neighbours: int | None = None
    by_layer: ClassVar[bool] = True
    messages: ClassVar[int] = 1

    @classmethod
    def of(cls, codec: Any) -> Factors:
        """Factors to as many neighbours as the codec says."""
        return cls(codec.neighbours)

    def link_bytes(self, layer: Layer, links: LinkCosts) -> float:
        """Two vectors of each product, to all who get them."""
        assert layer.products is not None
        spread = links.spread_bytes(VALUE_BYTES * layer.factor_values * layer.products)
        return spread * self._others(links) / (links.ranks - 1)

    def work_s(self, layer: Layer, links: LinkCosts, work: WorkTimes) -> float:
        """Seconds to form the products of all others' factors; a worker forms its own in any case."""
        assert layer.products is not None
        each = layer.values if layer.factor_values > 1 + layer.columns else layer.columns
        return work.product * layer.products * self._others(links) * each

    def pushed_bytes(self, layer: Layer, servers: int) -> float:
        """Bytes to all servers: each gets errors of the rows that it keeps, all inputs, and the values of a bias."""
        assert layer.products is not None
        beside = layer.values - layer.rows * layer.columns
        return VALUE_BYTES * (layer.products * (layer.rows + servers * layer.columns) + beside)

    def sums(self, plans: Sequence[BucketPlan], site: Site) -> CodedSums:
        from volary.exchange.gradients.factor_sums import FactorSums

        return FactorSums(site.group, plans, [_neighbours(plan) for plan in plans])

    def memory(self, plan: BucketPlan) -> Memory:
        from volary.exchange.gradients.factor_sums import factor_memory

        return factor_memory(plan)

    def pushed(self, piece: Piece, encoding: PushEncoding) -> PushedValues:
        """Factors, or their product where that is fewer bytes; of a bias its values."""
        from volary.exchange.gradients.plan import row_values
        from volary.exchange.servers.pushed_factors import BiasRows, WeightRows

        assert piece.rows is not None
        (part,) = piece.parts
        parameter = dict(piece.plan.parameters)[part.name]
        if parameter.dim() == 1:
            return BiasRows(piece.rows, part.start, part.end, piece.values)
        width = row_values(parameter)
        return WeightRows(piece.rows, part.start // width, part.end // width, piece.values)

    def _others(self, links: LinkCosts) -> int:
        return links.ranks - 1 if self.neighbours is None else min(self.neighbours, links.ranks - 1)

    def __str__(self) -> str:
        return "as factors" if self.neighbours is None else f"as factors, to {self.neighbours} others"


def _neighbours(plan: BucketPlan) -> int | None:
    assert isinstance(plan.representation, Factors)
    return plan.representation.neighbours


REPRESENTATION = Factors
