"""The models of a user's own loop that servers keep, and the optimisers whose rule they apply."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from volary.errors import SettingError
from volary.naming import named_parameters, trained_parameters
from volary.train.own.model.contents import Contents, as_one
from volary.train.served.server.loop_optimizer import LoopOptimizer, plain
from volary.train.update.held_parameters import ids_of

if TYPE_CHECKING:
    from torch import Tensor, nn
    from torch.optim import Optimizer


class ServedModel:
    """See `HookedModel`: the models and optimisers as they are now.

    module: the model, or all of them as one network. settings: of the optimisers, as servers take them. Raises BadInput
    for what servers cannot have.
    """

    def __init__(self, models: Sequence[nn.Module], optimizers: Sequence[Optimizer]) -> None:
        self.models, self.optimizers = models, optimizers
        self.module = as_one(models)
        self.settings = LoopOptimizer.of(optimizers, trained_parameters(self.module))
        self.contents = Contents(self.module)

    def has(self, optimizer: Optimizer) -> bool:
        """Whether servers have this optimiser's rule."""
        return any(one is optimizer for one in self.optimizers)

    def refuse_other(self, optimizer: Optimizer) -> None:
        """Raise SettingError for an optimiser that servers do not have."""
        if not self.has(optimizer):
            raise SettingError(
                f"{type(optimizer).__name__} updates a model, and servers do not have it; accepted with "
                "exchange=server: optimisers that worker.distribute was given, before the first batch"
            )

    def clipped(self, parameters: Sequence[Tensor]) -> list[Optimizer]:
        """The optimisers that update these parameters, of any shapes. Raises SettingError for a part of one's."""
        given = {id(one) for one in parameters}
        found = [one for one in self.optimizers if given & ids_of(one)]
        held = set[int]().union(*map(ids_of, found or self.optimizers))
        if missing := [name for name, one in named_parameters(self.module) if id(one) in held - given]:
            raise SettingError(
                f"worker.clip_grad_norm_ was given parameters without {missing[0]}, and servers find the norm of an "
                "update's whole gradient; accepted with exchange=server: all that the optimisers update which step next"
            )
        return found

    def refuse_changed(self) -> None:
        """Raise SettingError if the model is another than servers have."""
        if changed := self.contents.changed():
            raise SettingError(
                f"{changed}, and servers have the model as worker.distribute was given it; accepted with "
                "exchange=server: such changes before that"
            )


class FollowedRates:
    """The learning rates of the user's optimisers, which servers follow; nothing else of them may change later."""

    def __init__(self, optimizers: Sequence[Optimizer]) -> None:
        self._optimizers = optimizers
        self._kept = [_fixed(group) for group in self._groups()]

    def __call__(self) -> tuple[float, ...]:
        """The learning rates of all groups now. Raises SettingError if something else of them has changed."""
        for group, kept in zip(self._groups(), self._kept, strict=True):
            for name, value in _fixed(group).items():
                if kept.get(name, value) != value:
                    raise SettingError(
                        f"the optimiser's {name} was changed from {kept[name]} to {value}; accepted with "
                        "exchange=server: changes of lr, which servers follow"
                    )
        return tuple(float(group["lr"]) for group in self._groups())

    def _groups(self) -> list[dict[str, Any]]:
        return [group for one in self._optimizers for group in one.param_groups]


def _fixed(group: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in plain(group).items() if name not in ("lr", "initial_lr")}
