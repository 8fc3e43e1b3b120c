"""The cost model of representations: bytes on links, seconds of work, and the step that both make."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

APART = 1 / 3  # of the shorter of work and wire: while forward runs, no gradient is there that could travel


@dataclass(frozen=True)
class LinkCosts:
    """The links between `ranks` ranks, `local` of which are on the busiest node and share its link.

    bytes_per_s: what the link carries in each direction. levels: sums inside a node come before those between nodes.
    message_s: what a small message takes.
    """

    ranks: int
    local: int
    bytes_per_s: float
    levels: bool
    message_s: float = 0.0

    def summed_bytes(self, size_bytes: float) -> float:
        """Bytes that a node's link must send to sum `size_bytes` over all ranks (Patarasuk & Yuan, JPDC 2009)."""
        places = self.ranks / self.local if self.levels else self.ranks
        return 2 * (places - 1) / places * size_bytes

    def sliced_bytes(self, size_bytes: float) -> float:
        """The same where each rank sends slices straight to their owners and gets them back."""
        if self.levels:
            return self.summed_bytes(size_bytes)
        return 2 * self.local * (self.ranks - self.local) / self.ranks * size_bytes

    def spread_bytes(self, size_bytes: float) -> float:
        """Bytes that a node's link must send so that all ranks have the `size_bytes` of all ranks."""
        return self.local * (self.ranks - self.local) * size_bytes


@dataclass(frozen=True)
class WorkTimes:
    """Seconds of a core, measured on this machine.

    codecs: by name, of all that is done to a value that travels encoded. product: of one multiplication and addition
    where factors are multiplied. byte: of sending a byte and receiving one. matrices: by the name of a codec by rows,
    of each matrix among others, however few values it has.
    """

    codecs: Mapping[str, float]
    product: float
    byte: float = 0.0
    matrices: Mapping[str, float] = field(default_factory=dict)


def step_s(busy_s: float, wire_s: float) -> float:
    """Seconds of a step in which cores are busy for `busy_s`, to compute and exchange, and the link for `wire_s`."""
    return max(busy_s, wire_s) + APART * min(busy_s, wire_s)
