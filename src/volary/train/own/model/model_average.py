"""The exponential moving average (EMA) of a model's weights in a user's own loop (Polyak & Juditsky 1992)."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol

import torch

from volary.errors import BadInput, SettingError
from volary.naming import named_parameters

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from contextlib import AbstractContextManager

    from torch import Tensor, nn


class AveragedModel(Protocol):
    """A distributed model. averages: that are kept of it, and hear of each update from it."""

    model: nn.Module
    averages: list[ModelAverage]

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
    """See `WeightAverage`. Each worker keeps it, the same on all, as their weights are whenever some enter it.

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
        return dict(self._kept)

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        self.refuse_applied("average.load_state_dict()")
        parameters = dict(named_parameters(self._of.model))
        for name, one in state.items():
            if name not in parameters or parameters[name].shape != one.shape:
                has = f"of shape {tuple(parameters[name].shape)}" if name in parameters else "no such parameter"
                raise BadInput(
                    f"the average that is loaded has {name} of shape {tuple(one.shape)}, and the model has {has}; "
                    "accepted: an average of the same model"
                )
        self._late = []
        self._kept = {name: one.detach().to(parameters[name], copy=True) for name, one in state.items()}

    def take(self, parameters: Iterable[Tensor]) -> None:
        """These have been updated, alike on all workers: those of the model enter the average."""
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
