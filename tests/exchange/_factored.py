"""A network some of whose layers send factors, in a group of one or more ranks; the rest is summed as it is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from _workers import alone
from volary.comm.groups.blocking import add_up
from volary.comm.groups.group import Group
from volary.comm.sums.route import Memory
from volary.exchange.choice.bucketing import plan
from volary.exchange.gradients.bucket import ParameterSlot
from volary.exchange.gradients.buckets import Gradients
from volary.exchange.gradients.factor_hooks import send_factors
from volary.exchange.gradients.factor_sums import FactorSums
from volary.exchange.representations._base import Representation
from volary.exchange.representations.exact import EXACT
from volary.exchange.representations.factors import Factors

BUCKET_MB = 25.0


class Factored:
    """layers: those that send factors. left: chunks whose parcels have left. changed: layers with another forward."""

    def __init__(
        self,
        module: nn.Module,
        layers: list[str],
        group: Group | None = None,
        *,
        neighbours: int | None = None,
        passes: int = 1,
        weight: Callable[[], float] = lambda: 1.0,
    ) -> None:
        self.module, self.left, self._group = module, list[int](), group or alone()
        representations: dict[str, Representation] = {
            name: Factors(neighbours) for name, _ in module.named_parameters() if name.rpartition(".")[0] in layers
        }
        plans = plan(list(module.named_parameters()), BUCKET_MB, representations)
        own = [one for one in plans if one.representation != EXACT]
        self.route = FactorSums(self._group, own, [neighbours] * len(own))
        factors = iter(enumerate(self.route.memory))
        memory: list[Memory] = []
        self._place = dict[int, int]()
        for number, one in enumerate(plans):
            if one.representation == EXACT:
                flat = torch.zeros(one.shape.numel, dtype=one.dtype)
                memory.append(Memory(flat, flat))
            else:
                self._place[number], factors_memory = next(factors)
                memory.append(factors_memory)
        self.buckets = Gradients(
            plans,
            memory,
            [],
            chunk_mb=1,
            passes=passes,
            ready=lambda chunk: self.left.append(chunk.index),
            weight=weight,
        )
        self.changed = send_factors(module, self.buckets)

    def agree(self) -> list[ParameterSlot]:
        """End a step; the slots that had no gradient here."""
        missing = self.buckets.close()
        if self._place:
            arrivals = [self.route.sum_up(place, 0, 0) for place in self._place.values()]
            for arrival in arrivals:
                arrival.wait()
        for bucket in self.buckets.all:
            if bucket.index not in self._place and self._group.size > 1:
                add_up(bucket.contribution, self._group)
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
