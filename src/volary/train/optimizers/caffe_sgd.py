"""Stochastic gradient descent as Caffe has it, with the learning rate inside of the momentum (Jia et al. 2014)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, ClassVar, Literal

from volary.errors import SettingError
from volary.train.optimizers._base import check_usual

if TYPE_CHECKING:
    from torch import Tensor
    from torch.optim import Optimizer


@dataclass(frozen=True, kw_only=True)
class CaffeSgd:
    """Differs from `sgd` after a change of the learning rate: what momentum carries over keeps the old one."""

    elementwise: ClassVar[bool] = True

    lr: float = 0.01  # learning rate
    momentum: float = 0.0  # share of the last update that is carried over, from 0 to below 1
    weight_decay: float = 0.0  # penalty, which is part of the gradient
    decay: Literal["l2", "l1"] = "l2"  # what is decayed by: the value, or its sign
    nesterov: bool = False  # look ahead along the momentum; needs momentum

    def __post_init__(self) -> None:
        check_usual(self, "lr", "momentum", "weight_decay")
        if self.nesterov and not self.momentum:
            raise SettingError("nesterov is true; accepted: only with momentum above 0")

    @property
    def kept(self) -> int:
        return int(self.momentum > 0)

    def build(self, parameters: Iterable[Tensor]) -> Optimizer:
        from volary.train.update.rules.caffe_momentum import CaffeMomentum

        return CaffeMomentum(parameters, **asdict(self))


OPTIMIZER = CaffeSgd
