"""What travels, and in which order: the same on all ranks, or training ends in a sentence before anything is sent."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from volary.exchange._order import most_urgent_first
from volary.train.compare import compare

if TYPE_CHECKING:
    from volary.exchange._bucket import Chunk
    from volary.exchange._line import Travelled
    from volary.exchange._plan import Cut, Plan
    from volary.train.bulletin import Bulletin

WARM_STEPS = 2  # the first steps take their time for other reasons


def describe(plans: Sequence[Plan], chunk_mb: float) -> list[str]:
    """Each chunk of buckets with these plans, in words, in the order of `Buckets.chunks`."""
    return [
        f"bucket {number}, values {cut.start} to {cut.end} of {_parameters(plan, cut)}, {plan.way}"
        for number, plan in enumerate(plans)
        for cut in plan.cuts(chunk_mb)
    ]


def compare_plan(bulletin: Bulletin, topic: str, chunks: Sequence[str], order: Sequence[int]) -> None:
    """Raise RanksDiffer, naming the ranks and the first difference, unless all ranks send the same chunks in order.

    Their hash is compared; only where that differs are the plans themselves. A collective call.
    """
    facts = {f"plan, number {place}": chunks[index] for place, index in enumerate(order)}
    digest = hashlib.sha256(json.dumps(facts).encode()).hexdigest()
    if len(set(bulletin.share(f"{topic}-hash", digest))) > 1:
        compare(bulletin, topic, facts)


def _parameters(plan: Plan, cut: Cut) -> str:
    own = [plan.parameters[part.parameter] for part in cut.parts]
    # values travel in their order in memory
    orders = ["" if p.is_contiguous() else f" in memory as {p.stride()}" for _, p in own]
    named = [f"{name} {tuple(p.shape)}{order}" for (name, p), order in zip(own, orders, strict=True)]
    return ", ".join([*named, str(plan.dtype).removeprefix("torch.")])


class Profile:
    """Watches one step: when each parcel was there, and how fast the wire was.

    urgency: by chunk, the place in the network of the first layer that waits for it.
    """

    def __init__(self, chunks: Sequence[Chunk], urgency: Sequence[int]) -> None:
        self._chunks, self._urgency = chunks, urgency
        self._seen: dict[int, Travelled] = {}

    def add(self, chunk: Chunk, travelled: Travelled) -> None:
        """A parcel of that step arrived; its first chunk tells which."""
        self._seen[chunk.index] = travelled

    def order(self) -> list[int]:
        """Most urgent first, as it would have been in the step that was watched; of each parcel the first chunk."""
        chunks = [chunk for chunk in self._chunks if chunk.index in self._seen]
        seen = [self._seen[chunk.index] for chunk in chunks]
        began = min(one.ready_s for one in seen)
        bytes_per_s = sum(chunk.wire_bytes for chunk in chunks) / max(1e-9, busy_s(seen))
        takes = [chunk.wire_bytes / max(1.0, bytes_per_s) for chunk in chunks]
        urgency = [min(self._urgency[one.index] for one in self._with(chunk)) for chunk in chunks]
        order = most_urgent_first([one.ready_s - began for one in seen], takes, urgency)
        return [chunks[place].index for place in order]

    def _with(self, chunk: Chunk) -> list[Chunk]:
        return [other for other in self._chunks if other.parcel == chunk.parcel]


def busy_s(seen: Iterable[Travelled]) -> float:
    """Seconds in which anything was on the wire."""
    busy, until = 0.0, float("-inf")
    for one in sorted(seen, key=lambda one: one.sent_s):
        busy += max(0.0, one.received_s - max(one.sent_s, until))
        until = max(until, one.received_s)
    return busy
