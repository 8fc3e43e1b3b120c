"""The exponential moving average (EMA) of a model's weights in a user's own loop (Polyak & Juditsky 1992)."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Protocol

import torch

from volary.errors import SettingError
from volary.exchange.gradients.plan import in_memory_order, laid_out_as
from volary.naming import named_parameters
from volary.sharding.ranges import Range
from volary.train.own.parts.whole_tensors import refuse_other_shape
from volary.train.state.optimizer_state import OptimizerState
from volary.train.state.part_state import AVERAGE, AVERAGED, PartState

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from contextlib import AbstractContextManager

    from torch import Tensor, nn

    from volary.train.own.parts.cut_model import CutModel


class AveragedModel(Protocol):
    """A distributed model. averages: that are kept of it, and hear of each update from it."""

    model: nn.Module
    averages: list[ModelAverage]

    @property
    def cut(self) -> CutModel | None:
        """The handling of a model of which workers hold parts; None: each has all."""
        ...

    @property
    def updates_on_arrival(self) -> bool:
        """Whether weights change after `optimizer.step()` has returned, up to the next backward."""
        ...

    def settle(self) -> None:
        """Wait for all updates."""
        ...


class WeightAverage(Protocol):
    """The average that `worker.average` returns."""

    def applied(self) -> AbstractContextManager[None]:
        """Lend the model its average, to be evaluated or saved as a file; the trained weights come back after it.

        The weights are as they are until some have entered. Raises SettingError if an average is lent already.
        """
        ...

    def state_dict(self) -> dict[str, Tensor]:
        """The averages by the names of their parameters, in their shapes."""
        ...

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Go on from these averages. Raises BadInput if the model has no such parameters."""
        ...


class ModelAverage:
    """See `WeightAverage`. Each worker keeps that of the weights that it has, which are agreed on whenever they enter.

    The first weights enter whole; of later ones `1 - decay` beside `decay` of the average. Buffers are not averaged.
    """

    def __init__(self, of: AveragedModel, decay: float) -> None:
        self._of, self._new = of, 1 - decay
        self._kept: dict[str, Tensor] = {}  # by the parameter's name
        self._names: dict[Tensor, str] = {}
        self._late: list[Tensor] = []  # parameters that have yet to enter it, as updates of them are under way
        self.is_applied = False
        of.averages.append(self)

    @contextmanager
    def applied(self) -> Iterator[None]:
        if self.is_applied:
            raise SettingError("average.applied() was called within itself; accepted: once at a time")
        self._of.settle()
        self.catch_up()
        self._swap()
        self.is_applied = True
        try:
            yield
        finally:
            self.is_applied = False
            self._swap()

    def state_dict(self) -> dict[str, Tensor]:
        self.refuse_applied("worker.save or average.state_dict()")
        self._of.settle()
        self.catch_up()
        cut = self._of.cut
        return dict(self._kept) if cut is None else cut.whole_averages(self.parts())

    def parts(self) -> OptimizerState:
        """The averages as a checkpoint has them that is written in parts, of what this worker has."""
        kept = self._kept.items()
        entered: dict[str, Any] = {AVERAGED: [1, 0]}  # that there are some
        return OptimizerState(
            PartState(Range(name, 0, one.numel()), {AVERAGE: in_memory_order(one)}, entered) for name, one in kept
        )

    def take_up(self, state: OptimizerState) -> None:
        """Go on from what `parts` are in a checkpoint, as of tensors that are what this worker has."""
        self._late, self._kept = [], {}
        for name, parameter in named_parameters(self._of.model):
            each = state.of(Range(name, 0, parameter.numel())).each
            if AVERAGE in each:
                self._kept[name] = laid_out_as(parameter, each[AVERAGE]).detach().to(parameter, copy=True)

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        self.refuse_applied("average.load_state_dict()")
        parameters, cut = dict(named_parameters(self._of.model)), self._of.cut
        if cut is not None:
            state = cut.parts_of(state)
        for name, one in state.items():
            refuse_other_shape(name, one.shape, parameters[name].shape if name in parameters else None)
        self._late = []
        self._kept = {name: one.detach().to(parameters[name], copy=True) for name, one in state.items()}

    def take(self, parameters: Iterable[Tensor]) -> None:
        """Note that these have been updated, alike on all workers: those of the model enter the average."""
        updated = list(parameters)
        if any(one not in self._names for one in updated):
            self._names = {one: name for name, one in named_parameters(self._of.model)}
        self._late = [one for one in updated if one in self._names]
        if not self._of.updates_on_arrival:
            self.catch_up()

    @torch.no_grad()
    def catch_up(self) -> None:
        """Let enter what has yet to; all updates are done."""
        known: list[Tensor] = []
        values: list[Tensor] = []
        for parameter in self._late:
            average = self._kept.get(self._names[parameter])
            if average is None or not _alike(average, parameter):
                self._kept[self._names[parameter]] = parameter.detach().clone()
            else:
                known.append(average)
                values.append(parameter)
        if known:
            torch._foreach_lerp_(known, values, self._new)
        self._late = []

    def refuse_applied(self, called: str) -> None:
        """Raise SettingError if the model is lent its average, which is not to be trained or resumed from."""
        if self.is_applied:
            raise SettingError(
                f"{called} was called within average.applied(), where the model has its average in place of the "
                "trained weights; accepted: after it"
            )

    @torch.no_grad()
    def _swap(self) -> None:
        for name, parameter in named_parameters(self._of.model):
            average = self._kept.get(name)
            if average is not None and _alike(average, parameter):
                own = parameter.detach().clone()
                parameter.copy_(average)
                average.copy_(own)


def _alike(average: Tensor, parameter: Tensor) -> bool:
    """Not if the layer was replaced, or the model converted, since."""
    return average.shape == parameter.shape and average.dtype == parameter.dtype and average.device == parameter.device
