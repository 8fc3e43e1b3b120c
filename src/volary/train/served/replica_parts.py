"""A replica over servers that several workers hold together, each its part, of which it alone exchanges its slices."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import torch

from volary.comm.groups.blocking import add_up, gather, take_all_from_first
from volary.naming import named_parameters
from volary.sharding.groups import LEADER
from volary.train.agreement.in_parts import require_equal
from volary.train.state.weights import weights_of

if TYPE_CHECKING:
    from torch import Tensor

    from volary.comm.groups.layer_group import PartGroup
    from volary.partition._base import Part
    from volary.run.database.traffic import Traffic
    from volary.sharding.holdings import Holdings
    from volary.train.model import Model


def part_of(model: Model, rank: int) -> Part:
    """The part of the network, here whole, that a worker runs: every process of the run finds the same.

    Raises SettingError if it cannot be cut as its session says.
    """
    strategy = model.session.strategy
    planned = strategy.partition.planned(model.module, strategy.workers, model.some_inputs)
    found: Part = replace(strategy.partition, **planned).part(model.module, rank, strategy.workers)
    return found


def held_by_replica(model: Model) -> Holdings | None:
    """The holdings of the workers that hold a replica together; None: each holds one alone."""
    return part_of(model, LEADER).holdings.of_replica if model.session.strategy.ranks_each > 1 else None


class ReplicaParts:
    """This worker's part of its replica, and what passes between the workers that hold it.

    What all of them have whole the first one alone exchanges with servers; the others take its values from it, so that
    all compute with the same, however old these are.
    """

    def __init__(self, part: Part, layers: PartGroup) -> None:
        self.part, self._layers, self.group = part, layers, layers.group
        held, trained = part.holdings.of_replica, dict(named_parameters(part.module))
        alone = {one.name for one, ranks in held.keepers.items() if len(ranks) == 1}
        alone |= {*(block.name for block in held.cut), *held.buffers}
        alone |= {name for name, one in trained.items() if not one.requires_grad}
        self._shared = [one for name, one in weights_of(part.module).items() if name not in alone]
        shared = [one for name, one in trained.items() if name not in alone]
        self.shared_ids = {id(one) for one in shared}
        if not self.leads:
            for one in shared:
                one.register_post_accumulate_grad_hook(_drop)

    @property
    def leads(self) -> bool:
        """Whether this worker speaks for the replica."""
        return self.group.leads

    @property
    def traffic(self) -> tuple[Traffic, ...]:
        """The bytes between the workers of the replica, by codec."""
        return self._layers.traffic

    def pass_on(self) -> None:
        """Give all workers of the replica what its first one has of what they all have. A collective call."""
        take_all_from_first(self._shared, self.group)

    def compare(self, loss: float) -> None:
        """Raise RanksDiffer if the workers of the replica have other losses of the same batch. A collective call."""
        require_equal(gather(torch.tensor(loss, dtype=torch.float64), self.group))

    def agree(self, own: bool) -> bool:
        """Whether all workers of the replica say so. A collective call."""
        missing = torch.tensor([float(not own)])
        add_up(missing, self.group)
        return not missing.item()


def _drop(parameter: Tensor) -> None:
    parameter.grad = None  # the first worker of the replica has the same
