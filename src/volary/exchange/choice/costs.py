"""What a choice among representations goes by: bytes on links, and seconds of work."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class LinkCosts:
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
class WorkTimes:
    """Seconds of work, measured here. codecs: by name, of encoding, adding and decoding a value. product: of one
    multiplication and addition where factors are multiplied.
    """

    codecs: dict[str, float]
    product: float
