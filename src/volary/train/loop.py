"""The training loop, of every strategy."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Generic, TypeVar

import torch

from volary.errors import SettingError, TargetError
from volary.network.operations.single_value import ENOUGH_FOR_EACH, single_value
from volary.partition._base import Passes, whole_batch
from volary.train.coordinator import Coordinator, EvaluateTask, LearnTask, MicroBatch, Outcome, SaveTask
from volary.train.evaluation import totals

if TYPE_CHECKING:
    from torch import Tensor, nn

    from volary.network.criterion import Criterion
    from volary.network.flow import Flow
    from volary.train.hogwild.threads import LockFreeThreads
    from volary.train.predicting.text_writer import TextWriter
    from volary.train.recording.recorder import Recorder
    from volary.train.replica import Replica
    from volary.train.uncounted import UncountedLoss
    from volary.train.update.precision import Precision


Who = TypeVar("Who", bound=Coordinator, covariant=True)


@dataclass(frozen=True, kw_only=True)
class Training(Generic[Who]):
    """Everything that one worker trains with. evaluating: a second flow of the module. learn: in `volary.partition`.

    writer: of texts, if the session asks for them. threads: that learn and update instead of this one.
    """

    flow: Flow
    evaluating: Flow
    device: torch.device
    precision: Precision
    recorder: Recorder
    replica: Replica
    coordinator: Who
    uncounted: UncountedLoss
    writer: TextWriter | None = None
    learn: Callable[[Passes], bool] = whole_batch
    threads: LockFreeThreads | None = None


def train(it: Training[Coordinator]) -> Outcome:
    """Do what the coordinator says is next, until the run is over for this worker. Raises what its protocol says."""
    for task in it.coordinator:
        match task:
            case LearnTask():
                with enough_samples(it.recorder.rank, ENOUGH_FOR_EACH):
                    _learn(it, task)
            case EvaluateTask():
                _evaluate(it, task)
            case SaveTask():
                it.replica.settle()
                task.write()
    return it.coordinator.outcome


@contextmanager
def enough_samples(rank: int, accepted: str) -> Iterator[None]:
    """Raise SettingError where a batch norm has a single value a channel, instead of torch's ValueError.

    accepted: says what helps.
    """
    try:
        yield
    except ValueError as error:
        if norm := single_value(error):
            raise SettingError(
                f"{norm} got a single value a channel in training, as rank {rank} had one sample of a batch; {accepted}"
            ) from error
        raise


def _learn(it: Training[Coordinator], task: LearnTask) -> None:
    it.replica.begin(task)
    if it.threads is None:
        _learn_one_by_one(it, task.parts)
    else:
        it.threads.learn(task.parts, it.replica.update, it.coordinator.computed, it.recorder.enter)
    it.coordinator.complete(task)


def _learn_one_by_one(it: Training[Coordinator], parts: Iterable[MicroBatch]) -> None:
    for part in parts:
        if not it.learn(_Passes(it, part)):
            break
        if part.updates:
            it.replica.update()


@dataclass(frozen=True)
class _Passes:
    """The passes of one batch through a worker's network; see `volary.partition._base.Passes`."""

    it: Training[Coordinator]
    part: MicroBatch

    def forward(self) -> Tensor:
        it, part = self.it, self.part
        it.recorder.enter("forward")
        try:
            with it.precision.casting():
                # a layer waits only for its own parameters
                return it.flow(part.inputs, part.targets) if part.counted else it.flow.nothing()
        except TargetError as error:
            raise error.of(part.number(error.place)) from None

    def computed(self, loss: Tensor) -> bool:
        self.it.uncounted.look(loss, self.part.count)
        return self.it.coordinator.computed(self.part, loss.item())

    @property
    def inputs(self) -> Tensor:
        found: Tensor = self.part.inputs
        return found

    @property
    def targets(self) -> Tensor:
        found: Tensor = self.part.targets
        return found

    @property
    def criterion(self) -> Criterion:
        return self.it.flow.criterion

    def cut(self, count: int) -> Sequence[Passes]:
        part, found, first = self.part, list[Passes](), 0
        pieces = min(count, part.count)
        for inputs, targets in zip(part.inputs.tensor_split(pieces), part.targets.tensor_split(pieces), strict=True):
            counted = self.it.flow.counted(targets)
            if counted:
                own = MicroBatch(
                    inputs,
                    targets,
                    len(inputs),
                    counted,
                    weight=part.weight * counted / part.counted,
                    last=False,
                    updates=False,
                    number=partial(_number, part.number, first),
                )
                found.append(_Passes(self.it, own))
            first += len(inputs)
        return found

    @property
    def share(self) -> float:
        return self.part.weight

    def waiting(self) -> AbstractContextManager[None]:
        return self.it.recorder.waiting()

    def through(self, module: nn.Module, x: Tensor) -> Tensor:
        self.it.recorder.enter("forward")
        with self.it.precision.casting():
            y: Tensor = module(x)
        return y

    def turn_back(self) -> None:
        self.it.recorder.enter("backward")

    def loss_of(self, output: Tensor) -> tuple[Tensor, Tensor]:
        try:
            with self.it.precision.casting():
                loss = self.it.flow.criterion(output, self.part.targets)
        except TargetError as error:
            raise error.of(self.part.number(error.place)) from None
        (gradient,) = torch.autograd.grad(self.it.precision.scaled(loss, self.part.weight), output)
        return loss.detach(), gradient

    def add_gradients(self, gradients: Mapping[nn.Parameter, Tensor]) -> None:
        self.it.recorder.enter("backward")
        torch.autograd.backward(list(gradients), list(gradients.values()))

    def update(self, gradients: Mapping[nn.Parameter, Tensor], scale: float) -> None:
        self.it.replica.update_own(gradients, scale)

    def backward(self, loss: Tensor) -> None:
        self.it.recorder.enter("backward")
        self.it.precision.backward(loss, self.part.weight)  # a bucket leaves the moment its gradients exist


def _number(number: Callable[[int], int], first: int, place: int) -> int:
    return number(first + place)


def _evaluate(it: Training[Coordinator], task: EvaluateTask) -> None:
    with task.state as there:
        if there:
            if task.measured is not None:
                task.measured(*totals(it.evaluating, task.batches, it.device, it.recorder.enter))
            if it.writer is not None and task.writes:
                text = it.writer.write(task.step, it.device, it.recorder.enter)
                if task.reports:
                    it.recorder.event("text", of_step=task.step, prompt=it.writer.prompt, text=text)
