"""Adam with Nesterov's momentum (Dozat 2016)."""

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
class NAdam:
    """The optimiser torch.optim.NAdam, with its defaults."""

    elementwise: ClassVar[bool] = True

    lr: float = 0.002  # learning rate
    betas: tuple[float, float] = (0.9, 0.999)  # how much of the past the mean and the mean square keep
    eps: float = 1e-8  # added to the root of the mean square, against division by zero
    weight_decay: float = 0.0  # L2 penalty
    momentum_decay: float = 0.004  # how soon the momentum grows to its final share
    decoupled_weight_decay: bool = False  # let parameters shrink as with adamw, in place of the penalty

    def __post_init__(self) -> None:
        check_usual(self, "lr", "betas", "eps", "weight_decay")
        require(self.momentum_decay >= 0, "momentum_decay", self.momentum_decay, NON_NEGATIVE)

    @property
    def kept(self) -> int:
        return 2

    def build(self, parameters: Iterable[Tensor]) -> Optimizer:
        from torch import optim

        return optim.NAdam(list(parameters), **asdict(self))


OPTIMIZER = NAdam
