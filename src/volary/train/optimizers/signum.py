"""Signs of gradients, or of their momentum (Bernstein et al. 2018, arXiv:1802.04434)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, ClassVar

from volary.train.optimizers._base import check_usual

if TYPE_CHECKING:
    from torch import Tensor
    from torch.optim import Optimizer


@dataclass(frozen=True, kw_only=True)
class Signum:
    """Each value moves by the learning rate, against the sign of its gradient's moving average."""

    elementwise: ClassVar[bool] = True

    lr: float = 0.0001  # learning rate: by how much each value changes in a step
    momentum: float = 0.9  # share of the average that is carried over, from 0 (the gradient itself) to below 1
    weight_decay: float = 0.0  # share of the learning rate by which parameters shrink each step

    def __post_init__(self) -> None:
        check_usual(self, "lr", "momentum", "weight_decay")

    @property
    def kept(self) -> int:
        return int(self.momentum > 0)

    def build(self, parameters: Iterable[Tensor]) -> Optimizer:
        from volary.train.update.rules.signs import Signs

        return Signs(parameters, **asdict(self))


OPTIMIZER = Signum
