"""How a loop over servers learns from a batch: in passes and by optimisers, once or in several turns."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from volary.consistency._base import Push
from volary.errors import SettingError
from volary.train.update.held_parameters import parameters_of

if TYPE_CHECKING:
    from torch import Tensor
    from torch.optim import Optimizer

    from volary.consistency._base import Consistency


@dataclass(frozen=True)
class Distributing:
    """How a loop takes its steps: backward passes and optimisers of each. summed: the loss is a sum over samples."""

    passes: int
    optimizers: tuple[Optimizer, ...]
    summed: bool

    def repeats(self, consistency: Consistency) -> bool:
        """Whether a loop may learn from a batch in several turns, of which servers make an update each."""
        gradients = consistency.pushes is Push.GRADIENT and consistency.has_common_step
        return gradients and not consistency.elastic and self.passes == 1

    def waits(self, consistency: Consistency) -> bool:
        """Whether gradients leave with their optimiser's step, as others may stay for another turn."""
        return self.repeats(consistency) and len(self.optimizers) > 1


class OptimizerTurns:
    """Which optimisers have stepped in the turn at hand, which ends once all have stepped with the batch.

    It ends also as the loop computes once more after some have. Gradients that have not left by then stay.
    """

    def __init__(self, optimizers: Sequence[Optimizer]) -> None:
        self._optimizers = {id(one): one for one in optimizers}
        self._stepped = set[int]()  # in this turn
        self._earlier = set[int]()  # in those before, of the batch
        self._sent = set[int]()  # whose gradients have left in this turn
        self._made_with = 1.0  # the weight of gradients that wait

    def begin_batch(self) -> None:
        """A batch is at hand."""
        self._earlier.clear()
        self._stepped.clear()
        self._sent.clear()

    def begin_again(self) -> None:
        """The next turn of the same batch begins."""
        self._earlier |= self._stepped
        self._stepped.clear()
        self._sent.clear()

    def step(self, optimizer: Optimizer) -> bool:
        """An optimiser has stepped. Whether it is the first time in this turn."""
        first = id(optimizer) not in self._stepped
        self._stepped.add(id(optimizer))
        return first

    def leave(self, clipped: Sequence[Optimizer]) -> None:
        """Gradients leave: of these optimisers, which are to step; if there are none, of those that have."""
        self._sent = {id(one) for one in clipped} or set(self._stepped)

    def has_left(self, optimizer: Optimizer) -> bool:
        """Whether the optimiser's gradients have left in this turn."""
        return id(optimizer) in self._sent

    @property
    def begun(self) -> bool:
        """Whether an optimiser has stepped in this turn."""
        return bool(self._stepped)

    @property
    def all_have(self) -> bool:
        """Whether each optimiser has stepped with the batch, in one turn or another."""
        return self._optimizers.keys() <= self._stepped | self._earlier

    def weigh_waiting(self, weight: float) -> None:
        """Gradients that wait get the weight of those that they are added to. Raises SettingError if that is none."""
        before, self._made_with = self._made_with, weight
        if before == weight:
            return
        waiting = list(self._gradients)
        if waiting and weight:
            torch._foreach_mul_(waiting, before / weight)
        elif any(one.count_nonzero() for one in waiting):
            raise SettingError(
                "gradients whose optimiser took no step with their batch are added to those of one of which this "
                "worker has no samples; accepted with exchange=server: zero_grad() before, or larger batches"
            )

    @property
    def _gradients(self) -> Iterator[Tensor]:
        """Yield the gradients that parameters have, of any shapes."""
        held = (one.grad for each in self._optimizers.values() for one in parameters_of(each))
        return (one for one in held if one is not None)
