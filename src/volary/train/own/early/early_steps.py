"""Steps whose updates are made as sums arrive: up to `optimizer.step()` these wait, and no gradient is seen."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch

from volary.errors import SettingError
from volary.naming import named_parameters
from volary.train.own.early.absent_gradient import TWICE
from volary.train.strategies.overlapping import TINY

if TYPE_CHECKING:
    from torch import Tensor, nn
    from torch.optim import Optimizer

    from volary.train.own.early.early_update import EarlyUpdate
    from volary.train.replica import Voting


class EarlySteps:
    """Steps of a model that `update` changes, by slices if that is possible. behind: sums arrive in the next step."""

    def __init__(self, model: nn.Module, update: EarlyUpdate, strategy: Voting, *, behind: bool) -> None:
        self._model, self._update, self._strategy, self._behind = model, update, strategy, behind
        self._waiting = False  # agreed sums do, for `optimizer.step()`
        self._scale = 1.0  # of these

    @property
    def updates_on_arrival(self) -> bool:
        """Whether sums are applied as they arrive; else these steps are as all others."""
        return self._update.updates_on_arrival

    def begin_pass(self) -> None:
        """Backward begins. Raises SettingError if the sums of the one before still wait."""
        if self._waiting:
            raise SettingError(TWICE)

    def wait(self) -> None:
        """Gradients are agreed on: their sums wait from now on."""
        self._waiting = self.updates_on_arrival

    def clip(self, parameters: Sequence[Tensor], max_norm: float, kind: float) -> Tensor:
        """Scale the sums that wait to a norm of at most `max_norm`; the norm before, a scalar. Raises SettingError."""
        given = {id(one) for one in parameters}
        if missing := [name for name, one in named_parameters(self._model) if id(one) not in given]:
            raise SettingError(
                f"worker.clip_grad_norm_ was given parameters without {missing[0]}; accepted with early_update: all of "
                "one model"
            )
        if self._behind:
            raise SettingError(
                "worker.clip_grad_norm_ needs all gradients of this step, and with exchange.behind=true they come in "
                "the next one; accepted: behind=false"
            )
        norm = self._strategy.gradient_norm(kind)
        self._scale = float(torch.clamp(max_norm / (norm + TINY), max=1.0))
        return norm

    def apply(self) -> None:
        """The optimiser has stepped: from now on parameters change as their sums arrive."""
        if self._waiting:
            self._update.follow()
            self._waiting = False
            self._strategy.apply(self._scale)
            self._scale = 1.0

    def refuse_other(self, optimizer: Optimizer) -> None:
        """Raise SettingError if sums are applied as they arrive, and it is another that updates the model."""
        if self.updates_on_arrival and optimizer is not self._update.optimizer:
            raise SettingError(
                f"another {type(optimizer).__name__} than worker.distribute was given updates a model that has "
                "early_update; accepted: that one alone, or early_update=False"
            )

    def bring(self) -> None:
        """Give the optimiser the state that it has by now. A collective call where workers keep shares of it."""
        self._update.bring()

    def close(self) -> None:
        """Give the optimiser its state back; all updates are done."""
        self._update.close()
