"""A network some of whose layers send factors, in a world of one or more ranks; the rest is summed as it is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import distributed, nn

from volary.comm.routes._base import Memory
from volary.exchange._bucket import Slot
from volary.exchange._buckets import Buckets
from volary.exchange._factors import FactorSums
from volary.exchange._outer import send_factors
from volary.exchange._plan import Plan, plan
from volary.exchange._way import Factors, Way

BUCKET_MB = 25.0


class Rank:
    """What a route asks of a bulletin."""

    def __init__(self, rank: int, world_size: int) -> None:
        self.rank, self.world_size = rank, world_size


class Factored:
    """layers: those that send factors. left: chunks whose parcels have left. changed: layers with another forward."""

    def __init__(
        self,
        module: nn.Module,
        layers: list[str],
        rank: int = 0,
        world_size: int = 1,
        *,
        neighbours: int | None = None,
        passes: int = 1,
        weight: Callable[[], float] = lambda: 1.0,
    ) -> None:
        self.module, self.left, self._world_size = module, list[int](), world_size
        ways: dict[str, Way] = {
            name: Factors(neighbours) for name, _ in module.named_parameters() if name.rpartition(".")[0] in layers
        }
        plans = plan(list(module.named_parameters()), BUCKET_MB, ways)
        self.route = FactorSums(Rank(rank, world_size), [one for one in plans if one.way != Plan.way])  # type: ignore[arg-type]
        factors = iter(enumerate(self.route.memory))
        memory: list[Memory] = []
        self._place = dict[int, int]()
        for number, one in enumerate(plans):
            if one.way == Plan.way:
                flat = torch.zeros(one.shape.numel, dtype=one.dtype)
                memory.append(Memory(flat, flat))
            else:
                self._place[number], own = next(factors)
                memory.append(own)
        self.buckets = Buckets(
            plans,
            memory,
            [],
            chunk_mb=1,
            private=False,
            passes=passes,
            ready=lambda chunk: self.left.append(chunk.index),
            weight=weight,
        )
        self.changed = send_factors(module, self.buckets)

    def agree(self) -> list[Slot]:
        """End a step; the slots that had no gradient here."""
        missing = self.buckets.close()
        if self._place:
            arrivals = [self.route.sum_up(place, 0, 0) for place in self._place.values()]
            for arrival in arrivals:
                arrival.wait()
        for bucket in self.buckets.all:
            if bucket.index not in self._place and self._world_size > 1:
                distributed.all_reduce(bucket.contribution)
            for chunk in bucket.chunks:
                chunk.form()
            bucket.arrived()
        self.buckets.deliver()
        return missing

    def gradients(self) -> dict[str, Any]:
        """By name; ends the step, and clears them."""
        self.agree()
        found = gradients(self.module)
        self.module.zero_grad()
        self.left.clear()
        return found


def gradients(module: nn.Module) -> dict[str, Any]:
    """A copy of each there is, by name."""
    return {name: p.grad.clone() for name, p in module.named_parameters() if p.grad is not None}
