"""Adam whose first steps are rectified, in place of a warm-up (Liu et al. 2020, arXiv:1908.03265)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, ClassVar

from volary.train.optimizers._base import check_usual

if TYPE_CHECKING:
    from torch import Tensor
    from torch.optim import Optimizer


@dataclass(frozen=True, kw_only=True)
class RAdam:
    """The optimiser torch.optim.RAdam, with its defaults."""

    elementwise: ClassVar[bool] = True

    lr: float = 0.001  # learning rate
    betas: tuple[float, float] = (0.9, 0.999)  # how much of the past the mean and the mean square keep
    eps: float = 1e-8  # added to the root of the mean square, against division by zero
    weight_decay: float = 0.0  # L2 penalty
    decoupled_weight_decay: bool = False  # let parameters shrink as with adamw, in place of the penalty

    def __post_init__(self) -> None:
        check_usual(self, "lr", "betas", "eps", "weight_decay")

    @property
    def kept(self) -> int:
        return 2

    def build(self, parameters: Iterable[Tensor]) -> Optimizer:
        from torch import optim

        return optim.RAdam(list(parameters), **asdict(self))


OPTIMIZER = RAdam
