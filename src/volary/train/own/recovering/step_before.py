"""The state that a step of a loop of one's own begins with, but for what it updates: so it can be made again."""

from __future__ import annotations

from copy import deepcopy
from typing import TYPE_CHECKING, Any, Protocol

import torch
from torch.amp.grad_scaler import GradScaler
from torch.optim.lr_scheduler import LRScheduler, ReduceLROnPlateau

from volary.train.state.seeds import restore_generators

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from torch import Tensor
    from torch.optim import Optimizer

    from volary.train.own.model.contents import Contents
    from volary.train.strategies.strategy_state import StrategyState


class Updated(Protocol):
    """A distributed model: its buffers, and the residuals of its codecs."""

    @property
    def contents(self) -> Contents: ...

    @property
    def state(self) -> StrategyState: ...


_STEPPED = (LRScheduler, ReduceLROnPlateau, GradScaler)  # by the loop, with each step


class StepBefore:
    """As the step begins. generators: of this worker, before it read its batch; None: it reads its own data.

    buffers: of models, in place. values: that `worker.restore` was given, of which schedules and gradient scalers are
    taken. optimizers: whose settings schedules change. strategies: with the residuals of codecs.
    """

    def __init__(
        self,
        generators: Any,
        buffers: Iterable[Tensor],
        values: Iterable[Any],
        optimizers: Iterable[Optimizer],
        strategies: Sequence[StrategyState],
    ) -> None:
        self._generators = generators
        self._buffers = [(one, one.detach().clone()) for one in buffers]
        self._values = [(one, deepcopy(one.state_dict())) for one in values if isinstance(one, _STEPPED)]
        self._settings = [(group, _settings(group)) for one in optimizers for group in one.param_groups]
        self._strategies = [(one, deepcopy(one.rank_state())) for one in strategies]

    @classmethod
    def of(
        cls, generators: Any, named: Sequence[Any], optimizers: Sequence[Optimizer], models: Sequence[Updated]
    ) -> StepBefore:
        """As it is now. named: values that `worker.restore` was given. optimizers: those that `distribute` was."""
        known = [*optimizers, *(one for one in named if isinstance(one, torch.optim.Optimizer))]
        buffers = (buffer for model in models for buffer in model.contents.buffers())
        return cls(generators, buffers, named, known, [model.state for model in models])

    @torch.no_grad()
    def take_back_model(self) -> None:
        """Let buffers and residuals be as they were."""
        for one, before in self._buffers:
            one.copy_(before)
        for state, residuals in self._strategies:
            state.restore_rank([deepcopy(residuals)])

    def take_back(self) -> None:
        """Let all else be as it was: what the loop has done meanwhile with schedules and random generators."""
        for one, state in self._values:
            one.load_state_dict(deepcopy(state))
        for group, settings in self._settings:
            group.update(deepcopy(settings))
        if self._generators is not None:
            restore_generators(self._generators)


def _settings(group: dict[str, Any]) -> dict[str, Any]:
    return {name: deepcopy(value) for name, value in group.items() if name != "params"}
