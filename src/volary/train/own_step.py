"""A step of a user's own loop: gradients agree as backward ends, and `optimizer.step()` ends the step."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from volary.errors import SettingError, Stopped
from volary.exchange._collectives import take_all_from_first
from volary.exchange._plain_layers import only_looks
from volary.train.first_state import messages

if TYPE_CHECKING:
    from torch import Tensor, nn
    from torch.optim import Optimizer

    from volary.train.pulse import Pulse
    from volary.train.recorder import Recorder
    from volary.train.strategy import Strategy


@dataclass
class Share:
    """This worker's part of the step's samples. weight: of its gradients. epoch: how far, once the step is done."""

    weight: float
    samples: int = 0
    epoch: float = 0.0


class OwnStep:
    """Turns a user's calls of `backward` and `optimizer.step` into a step of the run. passes: backward passes in it."""

    def __init__(
        self, strategy: Strategy, share: Share, recorder: Recorder, pulse: Pulse, passes: int, world_size: int
    ) -> None:
        self._strategy, self._share, self._recorder, self._pulse = strategy, share, recorder, pulse
        self._passes, self._world_size = passes, world_size
        self._buffers: list[Tensor] = []
        self._passed = 0  # backward passes that have not been agreed on
        self._in_backward = False
        self._agreed = False
        self._ending = False

    def attach(self, model: nn.Module, optimizer: Optimizer) -> None:
        """Listen to both; after the strategy has, so that it has a gradient before this does."""
        self._buffers = list(model.buffers())
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
        if self._passed == self._passes:
            self._agree()
        self._recorder.enter("forward")

    def _agree(self) -> None:
        self._strategy.vote(0.0, busy=True, ending=self._pulse.asked_to_end)
        agreed = self._strategy.agree()
        self._ending = self._ending or agreed.ending
        self._passed, self._in_backward, self._agreed = 0, False, True
        if self._world_size > 1:  # of batch norm, say: any rank may evaluate, and all find the same
            for group in messages(self._buffers):
                take_all_from_first(group)

    def _before(self, _optimizer: Optimizer, arguments: tuple[Any, ...], named: dict[str, Any]) -> None:
        if len(arguments) > 1 or named:  # torch gives the optimiser itself as the first
            raise SettingError("optimizer.step(closure) cannot be distributed; call backward(), then step()")
        if self._passed or not self._agreed:  # fewer passes than were announced, or none that reached a parameter
            self._agree()
        self._recorder.enter("optimizer")

    def _after(self, optimizer: Optimizer, _arguments: tuple[Any, ...], _named: dict[str, Any]) -> None:
        self._agreed = False
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
