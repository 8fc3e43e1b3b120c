"""Steps that stay near where they begin: the conservative subproblem of large batches (Li et al., KDD 2014)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

from volary.errors import SettingError
from volary.session.checks import require
from volary.session.reading.choice import Choice
from volary.session.reading.settle import settle
from volary.train.optimizers._base import NON_NEGATIVE, check_usual

if TYPE_CHECKING:
    from torch import Tensor
    from torch.optim import Optimizer


@dataclass(frozen=True, kw_only=True)
class Conservative:
    """Another optimiser, of the loss and gamma / 2 times the squared distance to where every so many steps began."""

    elementwise: ClassVar[bool] = True

    lr: float = 0.01  # learning rate, of `of`
    gamma: float = 0.1  # weight of the distance
    steps: int = 8  # steps from one beginning to the next; as many as the period of consistency=local
    of: Annotated[Any, Choice("volary.train.optimizers")] = "sgd"  # the optimiser

    def __post_init__(self) -> None:
        settle(self)
        check_usual(self, "lr")
        require(self.gamma >= 0, "gamma", self.gamma, NON_NEGATIVE)
        require(self.steps >= 2, "steps", self.steps, "a whole number, 2 or more: the first has no distance yet")
        name = type(self.of).__module__.rpartition(".")[2]
        if isinstance(self.of, Conservative) or not self.of.elementwise or getattr(self.of, "first_rate_only", False):
            raise SettingError(f"of is {name}; accepted: one that updates each value by itself, as sgd or adam")
        if self.of.lr != type(self.of)().lr:
            raise SettingError(f"of.lr is {self.of.lr:g}; accepted: lr, which is that of {name}")

    @property
    def kept(self) -> int:
        kept: int = self.of.kept
        return kept + 1

    def build(self, parameters: Iterable[Tensor]) -> Optimizer:
        from volary.train.update.rules.near import Near

        return Near(replace(self.of, lr=self.lr).build(parameters), self.gamma, self.steps)


OPTIMIZER = Conservative
