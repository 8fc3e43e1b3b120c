"""Buckets of a network in a world of one: what was contributed is what was agreed."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from volary.comm.sums.route import Memory
from volary.exchange.choice.bucketing import plan
from volary.exchange.gradients.bucket import Chunk, ParameterSlot
from volary.exchange.gradients.buckets import Gradients
from volary.exchange.gradients.plan import BucketPlan


def buckets_of(module: nn.Module, left: list[int] | None = None, **more: Any) -> Gradients:
    """A bucket for each parameter, unless told. left: the chunks that have left, as they do."""
    settings: dict[str, Any] = {"passes": 1, "weight": lambda: 1.0, "chunk_mb": 25, **more}
    size_mb = settings.pop("bucket_mb", 1e-6)
    make_memory = settings.pop("memory", memory_of)

    def leave(chunk: Chunk) -> None:
        if left is not None:
            left.append(chunk.index)

    named = list(module.named_parameters())
    plans = plan([(name, p) for name, p in named if p.requires_grad], size_mb)
    memory = [make_memory(one) for one in plans]
    return Gradients(plans, memory, [(name, p) for name, p in named if not p.requires_grad], ready=leave, **settings)


def memory_of(one: BucketPlan) -> Memory:
    flat = torch.zeros(one.shape.numel, dtype=one.dtype)
    return Memory(flat, flat)


def apart(one: BucketPlan) -> Memory:
    """Memory of which agreed values have another place than contributed ones."""
    return Memory(torch.zeros(one.shape.numel, dtype=one.dtype), torch.zeros(one.shape.numel, dtype=one.dtype))


def closed(buckets: Gradients) -> list[ParameterSlot]:
    """End a step as a world of one would."""
    missing = buckets.close()
    for bucket in buckets.all:
        if bucket.agreed is not bucket.contribution:
            bucket.agreed.copy_(bucket.contribution)
        bucket.arrived()
    buckets.deliver()
    return missing
