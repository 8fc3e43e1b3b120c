"""Gossip (D-PSGD: Lian et al., NIPS 2017): after each step a worker takes the mean with its neighbours alone.

Neighbours are those of a ring, or of the one-peer exponential graph (Assran et al., ICML 2019; Ying et al., NeurIPS
2021): with a power of two of workers, p, all have the mean of all after log2 p steps in which nobody learnt.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from volary.consistency._base import Action, Consistency, Push

if TYPE_CHECKING:
    from collections.abc import Sequence


@dataclass(frozen=True, kw_only=True)
class Gossip(Consistency):
    """Each worker updates its own copy, which then becomes the mean of its own and its neighbours' copies."""

    graph: Literal["exponential", "ring"] = "exponential"  # one neighbour, another one each step; ring: always both

    def at(self, number: int, step_s: float, begun: int = 0) -> Action:
        """An update of its own; then its parameters leave."""
        return Action(updates=True, push=Push.PARAMETERS)

    def partners(self, step: int, workers: int) -> Sequence[int]:
        """The neighbours on both sides; in the exponential graph the worker 1, 2, 4, ... places before, in turn."""
        if self.graph == "ring":
            return (1, -1)
        return (2 ** (step % max(1, (workers - 1).bit_length())),)


CONSISTENCY = Gossip
