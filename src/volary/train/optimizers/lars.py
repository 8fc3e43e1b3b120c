"""Layer-wise adaptive rate scaling, for large batches (You, Gitman & Ginsburg 2017, arXiv:1708.03888)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, ClassVar

from volary.session.checks import require
from volary.train.optimizers._base import POSITIVE, check_usual

if TYPE_CHECKING:
    from torch import Tensor
    from torch.optim import Optimizer


@dataclass(frozen=True, kw_only=True)
class Lars:
    """Momentum whose learning rate is, for each parameter, in proportion to its norm over that of its gradient."""

    elementwise: ClassVar[bool] = False

    lr: float = 1.0  # learning rate of the whole network, that a schedule lowers
    momentum: float = 0.9  # share of the last update that is carried over, from 0 to below 1
    weight_decay: float = 0.0005  # L2 penalty, which the norm of the gradient takes in
    trust: float = 0.001  # how far a step may move a parameter, as a share of its norm

    def __post_init__(self) -> None:
        check_usual(self, "lr", "momentum", "weight_decay")
        require(self.trust > 0, "trust", self.trust, POSITIVE)

    @property
    def kept(self) -> int:
        return int(self.momentum > 0)

    def build(self, parameters: Iterable[Tensor]) -> Optimizer:
        from volary.train.update.rules.trust_ratio import LarsRule

        return LarsRule(parameters, **asdict(self))


OPTIMIZER = Lars
