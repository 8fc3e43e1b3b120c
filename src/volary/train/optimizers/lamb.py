"""Adam with a learning rate by layer, for large batches (You et al. 2020, arXiv:1904.00962)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, ClassVar

from volary.train.optimizers._base import check_usual

if TYPE_CHECKING:
    from torch import Tensor
    from torch.optim import Optimizer


@dataclass(frozen=True, kw_only=True)
class Lamb:
    """Adam whose update has, for each parameter, the norm of that parameter times the learning rate."""

    elementwise: ClassVar[bool] = False

    lr: float = 0.001  # learning rate
    betas: tuple[float, float] = (0.9, 0.999)  # how much of the past the mean and the mean square keep
    eps: float = 1e-6  # added to the root of the mean square, against division by zero
    weight_decay: float = 0.01  # share of the parameter that is added to its update

    def __post_init__(self) -> None:
        check_usual(self, "lr", "betas", "eps", "weight_decay")

    @property
    def kept(self) -> int:
        return 2

    def build(self, parameters: Iterable[Tensor]) -> Optimizer:
        from volary.train.update.rules.trust_ratio import LambRule

        return LambRule(parameters, **asdict(self))


OPTIMIZER = Lamb
