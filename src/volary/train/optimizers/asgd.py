"""Averaged stochastic gradient descent (Polyak & Juditsky 1992)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, ClassVar

from volary.session.checks import require
from volary.train.optimizers._base import NON_NEGATIVE, check_usual

if TYPE_CHECKING:
    from torch import Tensor
    from torch.optim import Optimizer


@dataclass(frozen=True, kw_only=True)
class Asgd:
    """The optimiser torch.optim.ASGD, with its defaults."""

    elementwise: ClassVar[bool] = True

    lr: float = 0.01  # learning rate
    lambd: float = 0.0001  # how soon the learning rate falls, and a decay of the parameters
    alpha: float = 0.75  # power with which the learning rate falls
    t0: float = 1e6  # step from which on the average is formed
    weight_decay: float = 0.0  # L2 penalty

    def __post_init__(self) -> None:
        check_usual(self, "lr", "weight_decay")
        require(self.lambd >= 0, "lambd", self.lambd, NON_NEGATIVE)
        require(self.alpha >= 0, "alpha", self.alpha, NON_NEGATIVE)
        require(self.t0 >= 0, "t0", self.t0, NON_NEGATIVE)

    @property
    def kept(self) -> int:
        return 1

    def build(self, parameters: Iterable[Tensor]) -> Optimizer:
        from torch import optim

        return optim.ASGD(list(parameters), **asdict(self))


OPTIMIZER = Asgd
