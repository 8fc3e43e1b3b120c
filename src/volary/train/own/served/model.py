"""The model of a user's own loop that servers keep, and the optimiser whose rule they apply."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from volary.errors import SettingError
from volary.naming import named_parameters
from volary.train.own.model.contents import Contents
from volary.train.served.server.own_optimizer import OwnOptimizer, plain

if TYPE_CHECKING:
    from torch import nn
    from torch.optim import Optimizer


class ServedModel:
    """As it is now. settings: of the optimiser, as servers take them. Raises BadInput for one that they cannot have."""

    def __init__(self, module: nn.Module, optimizer: Optimizer) -> None:
        self.module, self.optimizer = module, optimizer
        self.trained = {name: one for name, one in named_parameters(module) if one.requires_grad}
        self.settings = OwnOptimizer.of(optimizer, self.trained)
        self._contents = Contents(module)

    def refuse_changed(self) -> None:
        """Raise SettingError if the model is another than servers have."""
        if changed := self._contents.changed():
            raise SettingError(
                f"{changed}, and servers have the model as worker.distribute was given it; accepted with "
                "exchange=server: such changes before that"
            )


class FollowedRates:
    """The learning rates of the user's optimiser, which servers follow; nothing else of it may change from now on."""

    def __init__(self, optimizer: Optimizer) -> None:
        self._optimizer = optimizer
        self._kept = [_fixed(group) for group in optimizer.param_groups]

    def __call__(self) -> tuple[float, ...]:
        """Those of its groups now. Raises SettingError if something else of it has changed."""
        for group, kept in zip(self._optimizer.param_groups, self._kept, strict=True):
            for name, value in _fixed(group).items():
                if kept.get(name, value) != value:
                    raise SettingError(
                        f"the optimiser's {name} was changed from {kept[name]} to {value}; accepted with "
                        "exchange=server: changes of lr, which servers follow"
                    )
        return tuple(float(group["lr"]) for group in self._optimizer.param_groups)


def _fixed(group: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in plain(group).items() if name not in ("lr", "initial_lr")}
