"""What each way would cost a layer: bytes on a link, seconds on the wire and of work."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from volary.exchange._layers import VALUE_BYTES
from volary.exchange._way import EXACT, Encoded, Factors

if TYPE_CHECKING:
    from volary.codec._base import Codec
    from volary.exchange._layers import Layer
    from volary.exchange._way import Way


@dataclass(frozen=True)
class Links:
    """What ranks send over: `ranks` in all, `local` of them on the busiest node, which share its link.

    bytes_per_s: what the link carries in each direction. levels: sums inside a node come before those between nodes.
    """

    ranks: int
    local: int
    bytes_per_s: float
    levels: bool

    def summed_bytes(self, size_bytes: float) -> float:
        """What a node's link has to send so that `size_bytes` are summed over all (Patarasuk & Yuan, JPDC 2009)."""
        places = self.ranks / self.local if self.levels else self.ranks
        return 2 * (places - 1) / places * size_bytes

    def sliced_bytes(self, size_bytes: float) -> float:
        """The same where each rank sends slices straight to their owners and gets them back."""
        if self.levels:
            return self.summed_bytes(size_bytes)
        return 2 * self.local * (self.ranks - self.local) / self.ranks * size_bytes

    def spread_bytes(self, size_bytes: float) -> float:
        """What it sends so that everybody has the `size_bytes` of everybody."""
        return self.local * (self.ranks - self.local) * size_bytes


@dataclass(frozen=True)
class Work:
    """Seconds of work, measured here. codecs: by name, of encoding, adding and decoding a value. product: of one
    multiplication and addition where factors are multiplied.
    """

    codecs: dict[str, float]
    product: float


@dataclass(frozen=True)
class Option:
    """A way, and what is expected of it in a step."""

    way: Way
    link_bytes: float
    wire_s: float
    work_s: float

    @property
    def seconds(self) -> float:
        """Of wire and work, as if nothing hid either."""
        return self.wire_s + self.work_s


def as_it_is(layer: Layer, links: Links) -> Option:
    """All values over a route."""
    link_bytes = links.summed_bytes(VALUE_BYTES * layer.values)
    return Option(EXACT, link_bytes, link_bytes / links.bytes_per_s, 0.0)


def encoded(layer: Layer, codec: Codec, name: str, links: Links, work: Work) -> Option:
    """Frames to the owners of slices and back: each rank encodes once, and adds and decodes as much."""
    link_bytes = links.sliced_bytes(codec.frame_bytes(layer.rows, layer.columns))
    return Option(Encoded(codec), link_bytes, link_bytes / links.bytes_per_s, work.codecs[name] * layer.values)


def as_factors(layer: Layer, way: Factors, links: Links, work: Work) -> Option:
    """Two vectors of each product to all peers, where all products are formed; one rank's own would be in any case."""
    assert layer.products is not None
    others = links.ranks - 1 if way.neighbours is None else min(way.neighbours, links.ranks - 1)
    link_bytes = links.spread_bytes(layer.products_bytes(layer.products)) * others / (links.ranks - 1)
    more = layer.products * others * (layer.values if layer.factor_values > 1 + layer.columns else layer.columns)
    return Option(way, link_bytes, link_bytes / links.bytes_per_s, work.product * more)
