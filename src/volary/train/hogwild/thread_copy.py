"""A thread's copy of a network: layers and gradients of its own, on the parameters and buffers of all threads."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from copy import deepcopy
from math import isfinite
from threading import Lock
from typing import TYPE_CHECKING

from torch import nn

from volary.errors import SettingError, TargetError
from volary.naming import named_parameters
from volary.network.flow import Flow
from volary.server.update_rule import SliceUpdate
from volary.sharding.ranges import Range
from volary.train.update.optimizer_rule import OptimizerRule

if TYPE_CHECKING:
    from torch import Tensor

    from volary.train.coordinator import MicroBatch
    from volary.train.update.optimizer_rule import SliceOptimizer
    from volary.train.update.precision import Precision
    from volary.train.update.update import Update

_WHOLE = 0  # the slice that is all parameters


class FirstUpdates:
    """Which parameters have what their optimiser keeps of them: it is made by one thread, and then used by all."""

    def __init__(self) -> None:
        self._lock, self._done = Lock(), set[int]()

    def update(self, places: set[int], apply: Callable[[], object]) -> None:
        """Call `apply`, which updates the parameters at these places: alone, if it is the first time for any."""
        with nullcontext() if places <= self._done else self._lock:
            apply()
        self._done |= places


class ThreadCopy:
    """A thread's copy of the module of `flow`. update: of its parameters, with this one's settings, rate and state.

    first: of all threads. look: called with the loss of a micro-batch, a scalar, and its samples.
    """

    def __init__(
        self,
        flow: Flow,
        update: Update,
        precision: Precision,
        first: FirstUpdates,
        look: Callable[[Tensor, int], None],
    ) -> None:
        module, self._update, self._precision = flow.module, update, precision
        self._first, self._look = first, look
        # of `data`: what one thread changes between another's forward and backward is no mistake that autograd reports
        parameters = {id(one): nn.Parameter(one.data, one.requires_grad) for one in module.parameters()}
        buffers = {id(one): one.data for one in module.buffers()}
        copy = deepcopy(module, parameters | buffers)
        self._module, self._flow = module, Flow(copy, flow.criterion, flow.name, flow.positions)
        own = [(name, one) for name, one in named_parameters(module) if one.requires_grad]
        self._shared = [(one, parameters[id(one)]) for _, one in own]
        self._values = [values for _, values in self._shared]
        parts = {Range(name, 0, one.numel()): parameters[id(one)] for name, one in own}
        self.elementwise, self.clip_value, self.build = update.elementwise, update.clip_value, update.build
        self._rule = OptimizerRule({_WHOLE: parts}, self, changes_sums=update.changes_gradients)
        self._factor = 1.0

    def begin(self) -> None:
        """Go on from where parameters and what their optimiser remembers are now."""
        for one, values in self._shared:
            values.data = one.data
        self._update.lend_state(self._rule)

    def learn(self, batch: Sequence[MicroBatch], factor: float) -> list[float]:
        """Update by a batch, and return the losses of its parts; there is no update by one that is no number.

        factor: of the learning rate. Raises TargetError, and what the user's code raises.
        """
        self._factor = factor
        losses = []
        for part in batch:
            loss = self._forward(part)
            losses.append(loss.item())
            if not isfinite(losses[-1]):
                self._forget()
                return losses
            self._look(loss, part.count)
            self._precision.backward(loss, part.weight)
        gradients = [values.grad for values in self._values]
        used = {place for place, one in enumerate(gradients) if one is not None}
        self._first.update(used, lambda: self._rule.apply(_WHOLE, self._values, SliceUpdate(gradients)))
        return losses

    def step(self, one: SliceOptimizer, update: SliceUpdate) -> None:
        """Take a step with the gradients that were taken, at the rate of the batch at hand."""
        self._update.step_at(self._factor, one, update)

    def check(self) -> None:
        """Raise SettingError if what it computes is not what all threads share."""
        own = dict(self._flow.module.named_buffers())
        for name, one in self._module.named_buffers():
            if own[name].data_ptr() != one.data_ptr():
                raise SettingError(f"the network puts another tensor in the place of its buffer {name}")
        if any(one.grad is not None for one, _ in self._shared):
            raise SettingError("a copy of the network computes with layers of the one that it is a copy of")

    def _forward(self, part: MicroBatch) -> Tensor:
        try:
            with self._precision.casting():
                return self._flow(part.inputs, part.targets)
        except TargetError as error:
            raise error.of(part.number(error.place)) from None

    def _forget(self) -> None:
        for values in self._values:
            values.grad = None
