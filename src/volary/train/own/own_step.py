"""A step of a user's own loop: gradients agree as backward ends, and `optimizer.step()` ends the step."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch

from volary.comm.groups.blocking import take_all_from_first
from volary.consistency._base import Push
from volary.consistency.bsp import Bsp
from volary.errors import SettingError, Stopped
from volary.exchange.gradients.plain_layers import only_looks
from volary.train.coordinator import LearnTask
from volary.train.strategies.first_state import messages
from volary.train.strategies.votes import Vote

if TYPE_CHECKING:
    from torch import Tensor, nn
    from torch.optim import Optimizer

    from volary.comm.groups.group import Group
    from volary.consistency._base import Consistency
    from volary.train.member.pulse import EndWatch
    from volary.train.recording.recorder import Recorder
    from volary.train.replica import Voting


@dataclass
class Share:
    """This worker's part of the step's samples. weight: of its gradients. epoch: how far, once the step is done.

    total: samples of all workers; 0 where they are not fed by `worker.feed`. ends_epoch: it is an epoch's last step.
    """

    weight: float
    samples: int = 0
    total: int = 0
    epoch: float = 0.0
    ends_epoch: bool = False


@dataclass
class AveragingPeriod:
    """Steps of one's own between two means of all workers' parameters. samples: this worker's; total: of all."""

    steps: int = 0
    samples: int = 0
    total: int = 0
    began_s: float = field(default_factory=time.perf_counter)

    def add(self, share: Share) -> None:
        """A step is done."""
        self.steps += 1
        self.samples, self.total = self.samples + share.samples, self.total + share.total

    def vote(self, *, ending: bool, world_size: int) -> Vote:
        """This worker's part of the mean."""
        weight = self.samples / self.total if self.total else 1 / world_size
        return Vote(0.0, True, ending, 0, (time.perf_counter() - self.began_s) / self.steps, weight)


class OwnStep:
    """Turns a user's calls of `backward` and `optimizer.step` into a step of the run. passes: backward passes in it."""

    def __init__(
        self,
        strategy: Voting,
        consistency: Consistency,
        share: Share,
        recorder: Recorder,
        pulse: EndWatch,
        passes: int,
        group: Group,
    ) -> None:
        self._strategy, self._share, self._recorder, self._pulse = strategy, share, recorder, pulse
        self._consistency = consistency if group.size > 1 else Bsp()
        self._period = AveragingPeriod()
        self._step_s = 0.0  # what all workers took for a step in the last period, in the mean
        self._passes, self._group = passes, group
        self._parameters: list[Tensor] = []
        self._buffers: list[Tensor] = []
        self._passed = 0  # backward passes that have not been agreed on
        self._in_backward = False
        self._agreed = False
        self._ending = False

    def attach(self, model: nn.Module, optimizer: Optimizer) -> None:
        """Listen to both; after the strategy has, so that it has a gradient before this does."""
        self._parameters, self._buffers = list(model.parameters()), list(model.buffers())
        for parameter in model.parameters():
            if parameter.requires_grad:
                parameter.register_post_accumulate_grad_hook(self._reached)  # type: ignore[no-untyped-call]
        model.register_forward_pre_hook(self._entering)
        model.register_forward_hook(self._evaluated)
        optimizer.register_step_pre_hook(self._before)
        optimizer.register_step_post_hook(self._after)

    def _entering(self, _model: nn.Module, _inputs: Any) -> None:
        # an evaluation between two steps is progress too, however long it takes
        if torch.is_grad_enabled():
            self._recorder.enter_step("forward")
        else:
            self._recorder.enter("evaluate")

    def _evaluated(self, _model: nn.Module, _inputs: Any, _outputs: Any) -> None:
        if not torch.is_grad_enabled():
            self._recorder.enter("between steps")  # what follows is the user's own code

    @only_looks
    def _reached(self, _: Tensor) -> None:
        if not self._in_backward:
            self._in_backward = True
            self._recorder.enter("backward")
            # what follows backward (clipping, a gradient scaler, a log) must see the agreed gradients
            torch.autograd.Variable._execution_engine.queue_callback(self._passed_backward)

    def _passed_backward(self) -> None:
        self._passed += 1
        self._in_backward = False
        if self._passed == self._passes and not self._locally:
            self._agree()
        self._recorder.enter("forward")

    @property
    def _locally(self) -> bool:
        """Whether the user's optimiser updates this worker's parameters with its own gradients."""
        return self._consistency.at(self._period.steps, self._step_s).updates

    def _agree(self) -> None:
        self._strategy.vote(Vote(0.0, busy=True, ending=self._pulse.asked_to_end))
        agreed = self._strategy.agree()
        self._ending = self._ending or agreed.ending
        self._agreed = True
        self._share_buffers()

    def _share_buffers(self) -> None:
        self._passed, self._in_backward = 0, False
        if self._group.size > 1:  # of batch norm, say: any rank may evaluate, and all find the same
            for together in messages(self._buffers):
                take_all_from_first(together, self._group)

    def _end_period(self) -> None:
        """All replicas become their mean, if a period ends with this step."""
        action = self._consistency.at(self._period.steps, self._step_s)
        self._period.add(self._share)
        if action.push is Push.NOTHING and not self._share.ends_epoch:
            return
        self._strategy.vote(self._period.vote(ending=self._pulse.asked_to_end, world_size=self._group.size))
        agreed = self._strategy.agree()
        self._strategy.apply()
        self._ending, self._step_s, self._period = self._ending or agreed.ending, agreed.step_s, AveragingPeriod()
        self._share_buffers()

    def _before(self, _optimizer: Optimizer, arguments: tuple[Any, ...], named: dict[str, Any]) -> None:
        if len(arguments) > 1 or named:  # torch gives the optimiser itself as the first
            raise SettingError("optimizer.step(closure) cannot be distributed; call backward(), then step()")
        if self._locally:
            if not self._period.steps:
                self._strategy.begin(LearnTask(iter(()), 0, 0, 0))
            if self._share.total and not self._share.samples:  # what went through the loop is another worker's
                torch._foreach_zero_([one.grad for one in self._parameters if one.grad is not None])
        elif self._passed or not self._agreed:
            # fewer passes than were announced, or none that reached a parameter
            self._agree()
        self._recorder.enter("optimizer")

    def _after(self, optimizer: Optimizer, _arguments: tuple[Any, ...], _named: dict[str, Any]) -> None:
        self._agreed, self._passed = False, 0
        if self._locally:
            self._end_period()
        self._recorder.end_step(
            epoch=self._share.epoch,
            samples=self._share.samples,
            loss=float("nan"),
            lr=float(optimizer.param_groups[0]["lr"]),
            sent_bytes=self._strategy.sent_bytes,
            received_bytes=self._strategy.received_bytes,
        )
        if self._ending:
            raise Stopped("the run was asked to end after this step")
