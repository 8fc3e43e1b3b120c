"""Which links of a chain make which stage, and what a rank is left with."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from itertools import pairwise
from math import prod
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from volary.errors import SettingError
from volary.naming import named_buffers, named_parameters
from volary.network.dry_run import unchanged
from volary.network.layer_graph import layer_graph
from volary.partition.pipelining.cuts import LayerCost, best_cut
from volary.partition.pipelining.stages import Stage

if TYPE_CHECKING:
    from volary.partition._base import LayerUse
    from volary.partition.pipelining.chain import Chain

# of a core and its memory, and of a link to another process: only how they compare decides where a network is cut
OPERATIONS_PER_S, MOVED_BYTES_PER_S, HANDED_BYTES_PER_S = 3e10, 5e9, 1e9


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
                f"something; accepted: no more stages, so fewer workers, another schedule or a deeper network"
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
        """The rank that holds each parameter and buffer, by name, alone of so many."""
        module = self.chain.module
        names = {id(one): name for name, one in (*named_parameters(module), *named_buffers(module))}
        stages = {id(one): number for number in range(self.stages) for one in self.tensors(number)}
        return {name: (stages[one] % ranks,) for one, name in names.items()}

    def passed_bytes(self, ranks: int, value_bytes: int, uses: Mapping[str, LayerUse], samples: float) -> float:
        """Bytes that the rank which passes most hands to others in a step: values forward, and gradients back."""
        given = [samples * value_bytes * self._handed(begin, uses) for begin in self.begins[1:]]
        passed = [0.0] * ranks
        for stage, size in enumerate(given):
            passed[stage % ranks] += size
            passed[(stage + 1) % ranks] += size
        return max(passed)

    def _handed(self, begin: int, uses: Mapping[str, LayerUse]) -> int:
        """How many values of a sample the link at `begin` is given: by the last layer before it."""
        before = [layer for link in self.chain.links[:begin] for layer in link.layers]
        ran = list(uses)[::-1]
        return next((uses[name].values for layer in reversed(before) for name in ran if _is_in(name, layer)), 0)

    def _places(self, number: int) -> range:
        ends = [*self.begins[1:], len(self.chain.links)]
        return range(self.begins[number], ends[number])


def rough_costs(chain: Chain) -> list[LayerCost]:
    """Costs of the links by their parameters alone, where the network has not been tried."""
    return [_cost(chain, at, operations=0, out_bytes=0) for at in range(len(chain.links))]


def counted_costs(chain: Chain, inputs: Tensor) -> list[LayerCost]:
    """Costs of the links for `inputs` (samples, ...) of a micro-batch, by what they compute and move.

    The same on every machine, so that a resumed run is cut as it was. The network is as before. Raises what it raises.
    """
    graph = layer_graph(chain.module, inputs, nullcontext())["layers"]
    found, x = list[LayerCost](), inputs
    with torch.no_grad(), unchanged(chain.module):
        for at, link in enumerate(chain.links):
            x = chain.part(at, at + 1)(x)
            within = [one for one in graph if any(_is_in(one["name"], layer) for layer in link.layers)]
            operations = len(inputs) * sum(one["operations"] for one in within)
            moved = 4 * len(inputs) * sum(prod(one["shape"]) for one in within)
            found.append(_cost(chain, at, operations, x.nbytes, moved))
    return found


def _cost(chain: Chain, at: int, operations: int, out_bytes: int, moved_bytes: int = 0) -> LayerCost:
    own = list(chain.parameters[at].values())
    held_bytes, trained = sum(one.nbytes for one in own), any(one.requires_grad for one in own)
    # of a forward pass; a backward one takes about twice as long, and so do its gradients' sums
    seconds = operations / OPERATIONS_PER_S + (moved_bytes + held_bytes + 1) / MOVED_BYTES_PER_S
    return LayerCost(3 * seconds, out_bytes, trained)


def _is_in(name: str, layer: str) -> bool:
    return name == layer or name.startswith(f"{layer}.")
