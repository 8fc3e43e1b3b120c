"""A network of which this rank is left with some stages, and which still answers as a whole when it is evaluated."""

from __future__ import annotations

from itertools import chain as joined
from typing import TYPE_CHECKING

from volary.comm.groups.tensor_messages import TensorMessages
from volary.partition.pipelining.stages import Stages

if TYPE_CHECKING:
    from torch import Tensor, nn

    from volary.comm.groups.group import Group
    from volary.partition._base import Passes
    from volary.partition.pipelining.plan import StagePlan
    from volary.partition.pipelining.schedules import StageSchedule


class StagedNetwork:
    """The network that `plan` cuts. micro_batches: of each batch. narrow: see `Stages`."""

    def __init__(self, plan: StagePlan, schedule: StageSchedule, micro_batches: int, narrow: str) -> None:
        self._plan, self._schedule, self._micro_batches, self._narrow = plan, schedule, micro_batches, narrow
        self._stages: Stages | None = None

    def join(self, group: Group) -> TensorMessages:
        """Leave this rank with its stages, in place; see `volary.partition._base.Part`. A collective call."""
        plan, module = self._plan, self._plan.chain.module
        messages = TensorMessages(group, next(module.parameters()).device)
        own = {number: plan.stage(number) for number in range(messages.rank, plan.stages, messages.size)}
        self._stages = Stages(own, plan.stages, self._schedule, self._micro_batches, messages, self._narrow)
        if messages.size > 1:
            _leave(module, {id(one) for number in own for one in plan.tensors(number)})
            vars(module)["forward"] = self._evaluate
        return messages

    def learn(self, passes: Passes) -> bool:
        """Let a batch pass the stages, of all ranks that hold this replica; whether its loss was wanted."""
        assert self._stages is not None, "the ranks have not joined"
        return self._stages.learn(passes)

    def _evaluate(self, inputs: Tensor) -> Tensor:
        """The network's output, on all workers, which make this call together."""
        assert self._stages is not None
        if self._plan.chain.module.training:  # who looks for the source of a loss that is no number looks alone
            raise RuntimeError("a worker that holds some stages has no output of its own")
        return self._stages.evaluate(inputs)


def _leave(module: nn.Module, kept: set[int]) -> None:
    """Take all parameters and buffers out of `module` but those with these ids."""
    for part in module.modules():
        for tensors in (part._parameters, part._buffers):
            for name, one in list(joined(tensors.items())):
                if one is not None and id(one) not in kept:
                    del tensors[name]
