"""RMSprop (Tieleman & Hinton 2012; centred as in Graves 2013, arXiv:1308.0850)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, ClassVar

from volary.session.checks import require
from volary.train.optimizers._base import BELOW_ONE, check_usual

if TYPE_CHECKING:
    from torch import Tensor
    from torch.optim import Optimizer


@dataclass(frozen=True, kw_only=True)
class RmsProp:
    """The optimiser torch.optim.RMSprop, with its defaults."""

    elementwise: ClassVar[bool] = True

    lr: float = 0.01  # learning rate
    alpha: float = 0.99  # how much of the past the mean square keeps
    eps: float = 1e-8  # added to the root of the mean square, against division by zero
    weight_decay: float = 0.0  # L2 penalty
    momentum: float = 0.0  # share of the last update that is carried over
    centered: bool = False  # divide by an estimate of the variance instead of the mean square

    def __post_init__(self) -> None:
        check_usual(self, "lr", "momentum", "eps", "weight_decay")
        require(0 <= self.alpha < 1, "alpha", self.alpha, BELOW_ONE)

    @property
    def kept(self) -> int:
        return 1 + (self.momentum > 0) + self.centered

    def build(self, parameters: Iterable[Tensor]) -> Optimizer:
        from torch.optim import RMSprop

        return RMSprop(list(parameters), **asdict(self))


OPTIMIZER = RmsProp
