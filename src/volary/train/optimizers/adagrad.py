"""Adagrad (Duchi et al. 2011)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, ClassVar

from volary.session.checks import require
from volary.train.optimizers._base import NON_NEGATIVE, check_usual, fused

if TYPE_CHECKING:
    from torch import Tensor
    from torch.optim import Optimizer


@dataclass(frozen=True, kw_only=True)
class Adagrad:
    """The optimiser torch.optim.Adagrad, with its defaults."""

    elementwise: ClassVar[bool] = True

    lr: float = 0.01  # learning rate
    lr_decay: float = 0.0  # the learning rate is divided by 1 + step * lr_decay
    weight_decay: float = 0.0  # L2 penalty
    initial_accumulator_value: float = 0.0  # what the sum of squares begins with
    eps: float = 1e-10  # added to the root of the sum of squares, against division by zero

    def __post_init__(self) -> None:
        check_usual(self, "lr", "eps", "weight_decay")
        require(self.lr_decay >= 0, "lr_decay", self.lr_decay, NON_NEGATIVE)
        initial = self.initial_accumulator_value
        require(initial >= 0, "initial_accumulator_value", initial, NON_NEGATIVE)

    @property
    def kept(self) -> int:
        return 1

    def build(self, parameters: Iterable[Tensor]) -> Optimizer:
        from torch import optim

        own = list(parameters)
        return optim.Adagrad(own, **asdict(self), **fused(own, devices=["cpu"]))


OPTIMIZER = Adagrad
