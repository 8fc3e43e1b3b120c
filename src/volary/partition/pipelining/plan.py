"""Which links of a chain make which stage, and what a rank is left with."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from volary.errors import SettingError
from volary.naming import named_parameters
from volary.partition.pipelining.cuts import LayerCost, best_cut
from volary.partition.pipelining.stages import Stage

if TYPE_CHECKING:
    from volary.partition.pipelining.chain import Chain

HANDED_BYTES_PER_S = 1e9  # what is handed over counts for something where links are not known
TIMES = 3  # that each link is measured; the median counts


@dataclass(frozen=True)
class StagePlan:
    """begins: the links with which stages begin, rising; the first is 0."""

    chain: Chain
    begins: Sequence[int]

    @classmethod
    def by_names(cls, chain: Chain, names: Sequence[str], stages: int) -> StagePlan:
        """Stages after the first begin with these layers.

        Raises SettingError unless they can, in this order, and are as many as wanted.
        """
        if len(names) != stages - 1:
            raise SettingError(
                f"stages names {len(names)} layers, and there are {stages} stages; accepted: {stages - 1} names, of "
                "the layers with which the second and the following ones begin"
            )
        begins = [0, *(chain.place(name) for name in names)]
        for number, (one, other) in enumerate(pairwise(begins)):
            if one >= other:
                raise SettingError(
                    f"stages: {names[number]!r} runs before {names[number - 1]!r}, or begins the same stage; accepted: "
                    "layers in the order in which they run"
                )
        plan = cls(chain, begins)
        for stage in range(stages):
            if not any(one.requires_grad for one in plan.tensors(stage)):
                first = chain.links[begins[stage]].name
                raise SettingError(
                    f"stages: the stage that begins with {first!r} trains no parameter; accepted: stages that do"
                )
        return plan

    @classmethod
    def by_cost(cls, chain: Chain, costs: Sequence[LayerCost], stages: int) -> StagePlan:
        """The slowest stage is as quick as it can be. Raises SettingError if there are no so many stages."""
        begins = best_cut(costs, stages, chain.legal(), bytes_per_s=HANDED_BYTES_PER_S)
        if begins is None:
            most = max((n for n in range(1, stages) if best_cut(costs, n, chain.legal())), default=1)
            raise SettingError(
                f"partition=pipeline makes {stages} stages, and the network can be cut into {most} that train "
                f"something; accepted: {most} stages, so fewer workers, another schedule or a deeper network"
            )
        return cls(chain, begins)

    @property
    def names(self) -> list[str]:
        """The layers with which stages after the first begin."""
        return [self.chain.links[at].name for at in self.begins[1:]]

    def stage(self, number: int) -> Stage:
        """A stage, ready to run; its layers are the network's."""
        places = self._places(number)
        return Stage([self.chain.part(at, at + 1) for at in places], places.start)

    @property
    def stages(self) -> int:
        """How many there are."""
        return len(self.begins)

    def tensors(self, number: int) -> list[Tensor]:
        """The parameters and buffers that a stage reads; the first one has those that no layer reads, too."""
        parts = [self.chain.part(at, at + 1) for at in range(len(self.chain.links))]
        read = [[*part.parameters(), *part.buffers()] for part in parts]
        own = [one for at in self._places(number) for one in read[at]]
        if number:
            return own
        module, known = self.chain.module, {id(one) for found in read for one in found}
        return own + [one for one in (*module.parameters(), *module.buffers()) if id(one) not in known]

    def owners(self, ranks: int) -> dict[str, Sequence[int]]:
        """The rank that holds each parameter, by name, alone of so many."""
        names = {id(one): name for name, one in named_parameters(self.chain.module)}
        stages = {id(one): number for number in range(self.stages) for one in self.tensors(number)}
        return {name: (stages[one] % ranks,) for one, name in names.items()}

    def _places(self, number: int) -> range:
        ends = [*self.begins[1:], len(self.chain.links)]
        return range(self.begins[number], ends[number])


def rough_costs(chain: Chain) -> list[LayerCost]:
    """Costs of the links by their parameters alone, where nothing has been measured."""
    return [
        _cost(chain, at, seconds=1.0 + sum(one.numel() for one in chain.parameters[at].values()), out_bytes=0)
        for at in range(len(chain.links))
    ]


def measured_costs(chain: Chain, inputs: Tensor) -> list[LayerCost]:
    """Costs of the links, forward and backward, for `inputs` (samples, ...) of a micro-batch. Nothing is changed."""
    found, x = list[LayerCost](), inputs
    for at in range(len(chain.links)):
        link, seconds = chain.part(at, at + 1), list[float]()
        for _ in range(TIMES):
            began_s = time.perf_counter()
            given = x.detach().requires_grad_(x.is_floating_point())
            y = link(given)
            wanted = [one for one in (given, *link.parameters()) if one.requires_grad]
            if wanted and y.requires_grad:
                torch.autograd.grad(y, wanted, torch.ones_like(y), allow_unused=True)
            seconds.append(time.perf_counter() - began_s)
        x = y.detach()
        found.append(_cost(chain, at, median(seconds), x.nbytes))
    return found


def _cost(chain: Chain, at: int, seconds: float, out_bytes: int) -> LayerCost:
    own = list(chain.parameters[at].values())
    trained = any(one.requires_grad for one in own)
    return LayerCost(seconds, sum(one.nbytes for one in own) + out_bytes, out_bytes, trained)
