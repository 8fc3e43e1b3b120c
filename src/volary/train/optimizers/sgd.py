"""Stochastic gradient descent, with momentum (Sutskever et al. 2013)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, ClassVar

from volary.errors import SettingError
from volary.session.checks import require
from volary.train.optimizers._base import check_usual, fused

if TYPE_CHECKING:
    from torch import Tensor
    from torch.optim import Optimizer


@dataclass(frozen=True, kw_only=True)
class Sgd:
    """The optimiser torch.optim.SGD, with its defaults."""

    elementwise: ClassVar[bool] = True

    lr: float = 0.01  # learning rate
    momentum: float = 0.0  # share of the last update that is carried over, from 0 to below 1
    dampening: float = 0.0  # share of the gradient kept out of the momentum
    weight_decay: float = 0.0  # L2 penalty
    nesterov: bool = False  # look ahead along the momentum; needs momentum and no dampening

    def __post_init__(self) -> None:
        check_usual(self, "lr", "momentum", "weight_decay")
        require(0 <= self.dampening <= 1, "dampening", self.dampening, "from 0 to 1")
        if self.nesterov and (self.momentum == 0 or self.dampening != 0):
            raise SettingError("nesterov is true; accepted: only with momentum above 0 and dampening 0")

    @property
    def kept(self) -> int:
        return int(self.momentum > 0)

    def build(self, parameters: Iterable[Tensor]) -> Optimizer:
        from torch import zeros_like
        from torch.optim import SGD

        own = list(parameters)
        # the bare rule is one addition, which torch's default does quicker than its fused one
        quick = fused(own) if (self.momentum or self.weight_decay) and not self.dampening else {}
        optimizer = SGD(own, **asdict(self), **quick)
        if quick and self.momentum:
            # all begin at zero, or torch's fused update fails when a parameter's first gradient comes after others'
            for parameter in own:
                optimizer.state[parameter]["momentum_buffer"] = zeros_like(parameter)
        return optimizer


OPTIMIZER = Sgd
