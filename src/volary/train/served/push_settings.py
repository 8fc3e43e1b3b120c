"""How a worker's contributions to servers are made and encoded."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from volary.consistency._base import Push
from volary.exchange.compression.push_encoding import PushEncoding
from volary.exchange.gradients.buckets import Gradients, frozen_parameters
from volary.exchange.gradients.contributions import PushedDifferences, PushedGradients, PushedPulls

if TYPE_CHECKING:
    from torch import nn

    from volary.comm.sums.route import Memory
    from volary.consistency._base import Consistency
    from volary.exchange.gradients.bucket import Chunk
    from volary.exchange.gradients.contributions import Contributions
    from volary.train.served.centre import Centre
    from volary.train.served.layout import Layout
    from volary.train.served.replica_parts import ReplicaParts
    from volary.train.update.local import LocalUpdate

Made = Callable[[Sequence["Memory"], Callable[["Chunk"], None]], "Contributions"]


@dataclass(frozen=True, kw_only=True)
class PushSettings:
    """How contributions are made. passes: of backward, before gradients leave. weight: the factor of gradients.

    wait: gradients do, with their parameters, until the replica takes some.
    skips: gradients that no codec can encode are left out, with a warning. update: of this worker's own parameters, if
    contributions are what that changes. centre: of which they are pulls. parts: of the replica, if others hold some.
    """

    passes: int
    weight: Callable[[], float] = lambda: 1.0
    wait: bool = False
    skips: bool = False
    update: LocalUpdate | None = None
    centre: Centre | None = None
    parts: ReplicaParts | None = None

    def made(self, consistency: Consistency, module: nn.Module, layout: Layout) -> Made:
        """Return the function that makes contributions, given memory and a callback for each whole chunk."""
        plans, chunk_mb = layout.plans, layout.chunk_mb
        if self.centre is not None:
            return partial(PushedPulls, plans, chunk_mb=chunk_mb, own=self.centre.own, part=self.centre.part)
        if consistency.pushes is Push.DIFFERENCE:
            return partial(PushedDifferences, plans, chunk_mb=chunk_mb)

        def gradients(memory: Sequence[Memory], ready: Callable[[Chunk], None]) -> PushedGradients:
            frozen, passes, weight = frozen_parameters(module), self.passes, self.weight
            buckets = Gradients(plans, memory, frozen, chunk_mb=chunk_mb, passes=passes, ready=ready, weight=weight)
            return PushedGradients(module, buckets, in_place=self.parts is None or not self.parts.part.at_once)

        return gradients

    def encoding(self, layout: Layout, warn: Callable[[str], None]) -> PushEncoding:
        """How what is pushed is encoded. warn: told what no codec can encode, where that is left out."""
        return PushEncoding(layout.plans, warn if self.skips else None)
