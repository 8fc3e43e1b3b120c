"""The training loop, of every strategy."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, TypeVar

from volary.errors import TargetError
from volary.train.coordinator import Coordinator, EvaluateTask, LearnTask, Outcome, SaveTask
from volary.train.evaluation import totals

if TYPE_CHECKING:
    import torch

    from volary.network.flow import Flow
    from volary.train.recording.recorder import Recorder
    from volary.train.replica import Replica
    from volary.train.uncounted import UncountedLoss
    from volary.train.update.precision import Precision


Who = TypeVar("Who", bound=Coordinator, covariant=True)


@dataclass(frozen=True, kw_only=True)
class Training(Generic[Who]):
    """What one worker trains with. evaluating: the second flow, on the same module."""

    flow: Flow
    evaluating: Flow
    device: torch.device
    precision: Precision
    recorder: Recorder
    replica: Replica
    coordinator: Who
    uncounted: UncountedLoss


def train(it: Training[Coordinator]) -> Outcome:
    """Do what the coordinator says is next, until the run is over for this worker. Raises what its protocol says."""
    for task in it.coordinator:
        match task:
            case LearnTask():
                _learn(it, task)
            case EvaluateTask():
                _evaluate(it, task)
            case SaveTask():
                it.replica.settle()
                task.write()
    return it.coordinator.outcome


def _learn(it: Training[Coordinator], task: LearnTask) -> None:
    it.replica.begin(task)
    for part in task.parts:
        it.recorder.enter("forward")
        try:
            with it.precision.casting():
                # a layer waits only for its own parameters
                loss = it.flow(part.inputs, part.targets) if part.counted else it.flow.nothing()
        except TargetError as error:
            raise error.of(part.number(error.place)) from None
        it.uncounted.look(loss, part.count)
        if not it.coordinator.computed(part, loss.item()):
            break
        it.recorder.enter("backward")
        it.precision.backward(loss, part.weight)  # a bucket leaves the moment its gradients exist
        if part.updates:
            it.replica.update()
    it.coordinator.complete(task)


def _evaluate(it: Training[Coordinator], task: EvaluateTask) -> None:
    with task.state as there:
        if there:
            task.measured(*totals(it.evaluating, task.batches, it.device, it.recorder.enter))
