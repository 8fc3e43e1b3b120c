"""Checks that all ranks send the same in the same order; else training ends in a sentence before anything is sent."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from volary.train.member.compare import compare

if TYPE_CHECKING:
    from volary.comm.groups.group import Bulletin
    from volary.exchange.gradients.plan import BucketPlan, ChunkPlan


def describe(plans: Sequence[BucketPlan], chunk_mb: float) -> list[str]:
    """Each chunk of buckets with these plans, in words, in the order of `Buckets.chunks`."""
    return [
        f"bucket {number}, values {cut.start} to {cut.end} of {_parameters(plan, cut)}, {plan.representation}"
        if plan.representation.travels
        else f"bucket {number}, {', '.join(part.name for part in cut.parts)}, {plan.representation}"
        for number, plan in enumerate(plans)
        for cut in plan.cuts(chunk_mb)
    ]


def compare_plan(bulletin: Bulletin, topic: str, chunks: Sequence[str], order: Sequence[int]) -> None:
    """Raise RanksDiffer, naming the ranks and the first difference, unless all ranks send the same chunks in order.

    A collective call.
    """
    compare(bulletin, topic, {f"plan, number {place}": chunks[index] for place, index in enumerate(order)})


def _parameters(plan: BucketPlan, cut: ChunkPlan) -> str:
    parameters = dict(plan.parameters)
    own = [(part.name, parameters[part.name]) for part in cut.parts]
    # values travel in their order in memory
    orders = ["" if p.is_contiguous() else f" in memory as {p.stride()}" for _, p in own]
    named = [f"{name} {tuple(p.shape)}{order}" for (name, p), order in zip(own, orders, strict=True)]
    return ", ".join([*named, str(plan.dtype).removeprefix("torch.")])
