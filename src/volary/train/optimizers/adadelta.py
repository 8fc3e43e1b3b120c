"""Adadelta (Zeiler 2012, arXiv:1212.5701)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, ClassVar

from volary.session.checks import require
from volary.train.optimizers._base import BELOW_ONE, POSITIVE, check_usual

if TYPE_CHECKING:
    from torch import Tensor
    from torch.optim import Optimizer


@dataclass(frozen=True, kw_only=True)
class Adadelta:
    """The optimiser torch.optim.Adadelta, with its defaults."""

    elementwise: ClassVar[bool] = True

    lr: float = 1.0  # learning rate; the method's own is 1
    rho: float = 0.9  # how much of the past the mean squares keep
    eps: float = 1e-6  # added under both roots
    weight_decay: float = 0.0  # L2 penalty

    def __post_init__(self) -> None:
        check_usual(self, "lr", "weight_decay")
        require(0 <= self.rho < 1, "rho", self.rho, BELOW_ONE)
        require(self.eps > 0, "eps", self.eps, POSITIVE)

    @property
    def kept(self) -> int:
        return 2

    def build(self, parameters: Iterable[Tensor]) -> Optimizer:
        from torch import optim

        return optim.Adadelta(list(parameters), **asdict(self))


OPTIMIZER = Adadelta
