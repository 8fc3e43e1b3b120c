"""A period: a worker's own steps between two means of all workers' parameters."""

from __future__ import annotations

import time
import weakref
from typing import TYPE_CHECKING

from volary.consistency._base import Push
from volary.errors import SettingError
from volary.train.agreement.votes import Vote

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch.optim import Optimizer

    from volary.consistency._base import Consistency
    from volary.train.own.model.share import Share


class AveragingPeriod:
    """Says which steps of a user's loop update this worker's parameters alone, and after which of them a mean is due.

    consistency: decides. share: of the samples of the newest batch. step: the number of the run's newest. Under a model
    without local updates each step is all workers' together, and no period is ever under way.
    """

    def __init__(self, consistency: Consistency, share: Share, step: Callable[[], int]) -> None:
        self._consistency, self._share, self._step, self._begun = consistency, share, step, 0
        self._updater: tuple[weakref.ref[Optimizer], int] | None = None  # the newest, and its batch
        self.begin(0.0)

    def begin(self, step_s: float) -> None:
        """Count steps from 0. step_s: seconds of a step in the last period, the mean of all workers."""
        self._step_s, self._began_s = step_s, time.perf_counter()
        self._steps, self._counted, self._total = 0, 0.0, 0.0  # what counted: of this worker, and of all

    def within(self, consistency: Consistency, *, measured: bool) -> None:
        """Go by the rules for another number of workers from now on. measured: all of them know how long steps take."""
        self._consistency = consistency
        self.begin(self._step_s if measured else 0.0)

    def begin_anew(self) -> None:
        """Forget the steps since the last mean."""
        self.begin(self._step_s)

    @property
    def under_way(self) -> bool:
        """Whether workers have made steps of their own since the last mean."""
        return self._steps > 0

    @property
    def own_copy(self) -> str:
        """Say what a worker's parameters are now if not a model of all workers, and what to do; else return ""."""
        own = "is this worker's own copy: other workers have others"
        if not self._consistency.equal:
            return f"{own}; accepted: worker.save(model=model), on all workers, which writes the one model of all"
        if not self.under_way:
            return ""
        after = f"{self._steps} step{'s' * (self._steps > 1)} after replicas were equal last"
        return f"{own}, {after}; accepted: worker.barrier() on all workers after the last step, which ends the period"

    @property
    def updates(self) -> bool:
        """Whether the user's optimiser updates this worker's parameters with its own gradients."""
        return self._consistency.at(self._steps, self._step_s).updates

    def refuse_save(self) -> None:
        """Raise SettingError if workers have parameters of their own just now, which no checkpoint holds."""
        if self.under_way:
            raise SettingError(
                f"worker.save was called {self._steps} steps after replicas were equal last; accepted under "
                "local steps: after a step that ends a period, as the last of an epoch does, or after "
                "worker.barrier(), which ends it"
            )

    def refuse_second(self, optimizer: Optimizer) -> None:
        """Raise SettingError if another has updated the model on the same batch: a local step is one optimiser's."""
        before, self._updater = self._updater, (weakref.ref(optimizer), self._share.batches)
        if before is None or before[1] != self._share.batches or before[0]() in (None, optimizer):
            return
        raise SettingError(
            f"a second {type(optimizer).__name__} updates a model in the same step, and workers' parameters differ: "
            "their mean is taken after the step of one; accepted: one optimiser with groups of parameters, or "
            "one whose step() calls the others', or consistency=bsp"
        )

    def end_step(self) -> bool:
        """Count the step that ends. Whether the mean of all replicas is due after it."""
        if not self._steps:  # not before: a run may be resumed after its first model was distributed
            self._begun = self._step()
        action, share = self._consistency.at(self._steps, self._step_s, self._begun), self._share
        self._steps += 1
        counted, total = share.counted
        self._counted, self._total = self._counted + counted, self._total + total
        return action.push is not Push.NOTHING or share.ends_epoch

    def weight(self, world_size: int) -> float:
        """This worker's part of the mean: its share of what all have learnt from in the period."""
        return self._counted / self._total if self._total else 1 / world_size

    def vote(self, *, ending: bool, world_size: int, place: int, requests: int) -> Vote:
        """This worker's vote at the end of the period."""
        weight = self.weight(world_size)
        step_s = (time.perf_counter() - self._began_s) / self._steps
        return Vote(0.0, True, ending, step_s=step_s, weight=weight, place=place, requests=requests)
