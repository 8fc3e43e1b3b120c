"""The state that a round of a loop of one's own begins with: so it can be made again."""

from __future__ import annotations

from copy import deepcopy
from typing import TYPE_CHECKING, Any, Protocol

import torch
from torch.amp.grad_scaler import GradScaler
from torch.optim.lr_scheduler import LRScheduler, ReduceLROnPlateau

from volary.naming import trained_parameters
from volary.train.state.rank_state import PARAMETERS
from volary.train.state.seeds import restore_generators

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from torch import Tensor, nn
    from torch.optim import Optimizer

    from volary.train.own.model.contents import Contents
    from volary.train.own.recovering.replica_state import ReplicaState
    from volary.train.recording.recorder import Recorder
    from volary.train.strategies.strategy_state import StrategyState


class Updated(Protocol):
    """A distributed model: its buffers, the residuals of its codecs, and what its replica is if others differ."""

    model: nn.Module

    @property
    def contents(self) -> Contents: ...

    @property
    def state(self) -> StrategyState: ...

    @property
    def updates(self) -> bool:
        """Whether workers update it by themselves."""
        ...

    def replica_state(self) -> ReplicaState:
        """A copy of what its replica is now."""
        ...

    def go_on_from(self, state: ReplicaState) -> None:
        """Let its replica be this in the next group."""
        ...


_STEPPED = (LRScheduler, ReduceLROnPlateau, GradScaler)  # by the loop, with each step


class RoundBefore:
    """As the round begins. generators: of this worker, before it read its batch; None: it reads its own data.

    named: values that `worker.restore` was given, of which schedules and gradient scalers are taken. optimizers: those
    that `distribute` was given, whose settings schedules change; what they remember is kept, too, where workers update
    by themselves. models: their buffers, residuals of codecs, and with updates of their own parameters.
    """

    def __init__(
        self,
        generators: Any,
        named: Sequence[Any],
        optimizers: Sequence[Optimizer],
        models: Sequence[Updated],
        recorder: Recorder,
    ) -> None:
        self._generators, self._recorder, self._step = generators, recorder, recorder.step
        self._buffers = [(one, one.detach().clone()) for model in models for one in model.contents.buffers()]
        self._values = [(one, deepcopy(one.state_dict())) for one in named if isinstance(one, _STEPPED)]
        known = [*optimizers, *(one for one in named if isinstance(one, torch.optim.Optimizer))]
        self._settings = [(group, _settings(group)) for one in known for group in one.param_groups]
        self._strategies = [(one.state, deepcopy(one.state.rank_state())) for one in models]
        self._replicas = [(one, one.replica_state()) for one in models if one.updates]
        self._parameters = [pair for one in self._replicas for pair in _parameters(*one)]
        self._optimizers: dict[int, tuple[Optimizer, dict[Tensor, Any]]] = {}
        for one in known if self._replicas else ():
            self.hold(one)

    @property
    def updates(self) -> bool:
        """Whether workers update by themselves."""
        return bool(self._replicas)

    def hold(self, optimizer: Optimizer) -> None:
        """Keep what it remembers, unless that is kept: it is about to make its first step of the round."""
        if self._replicas and id(optimizer) not in self._optimizers:
            remembered = {parameter: deepcopy(state) for parameter, state in optimizer.state.items()}
            self._optimizers[id(optimizer)] = optimizer, remembered

    @torch.no_grad()
    def take_back_model(self) -> None:
        """Let buffers and residuals be as they were, and what workers have updated by themselves."""
        for one, before in (*self._buffers, *self._parameters):
            one.copy_(before)
        for state, residuals in self._strategies:
            state.restore_rank([deepcopy(residuals)])
        for optimizer, remembered in self._optimizers.values():
            optimizer.state.clear()
            optimizer.state.update({parameter: deepcopy(state) for parameter, state in remembered.items()})
        if self._replicas:
            self._recorder.go_on_from(self._step)

    def go_on_with_now(self) -> None:
        """Let what workers have updated be, once that is taken back, as it is now: in another group, the last worker
        begins with what all had alike.
        """
        self._parameters = [(one, one.detach().clone()) for one, _ in self._parameters]

    def take_back_replicas(self) -> None:
        """Let replicas that differ go on in the next group from what they were."""
        for model, state in self._replicas:
            model.go_on_from(state)

    def stand(self) -> None:
        """Let schedules and learning rates be what the loop makes them."""
        self._values, self._settings = [], []

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


def _parameters(model: Updated, state: ReplicaState) -> Iterable[tuple[Tensor, Tensor]]:
    """The trained parameters of a model, each with a copy of it, which the replica's state may have."""
    kept = state.own.get(PARAMETERS, {}).get("values", {})
    for name, one in trained_parameters(model.model).items():
        yield one, kept[name] if name in kept else one.detach().clone()
