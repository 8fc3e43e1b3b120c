"""Adam with the largest gradient in place of the mean square (Kingma & Ba 2015, arXiv:1412.6980)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, ClassVar

from volary.train.optimizers._base import check_usual

if TYPE_CHECKING:
    from torch import Tensor
    from torch.optim import Optimizer


@dataclass(frozen=True, kw_only=True)
class Adamax:
    """The optimiser torch.optim.Adamax, with its defaults."""

    elementwise: ClassVar[bool] = True

    lr: float = 0.002  # learning rate
    betas: tuple[float, float] = (0.9, 0.999)  # how much of the past the mean and the largest magnitude keep
    eps: float = 1e-8  # added to the largest magnitude, against division by zero
    weight_decay: float = 0.0  # L2 penalty, added to the gradient

    def __post_init__(self) -> None:
        check_usual(self, "lr", "betas", "eps", "weight_decay")

    @property
    def kept(self) -> int:
        return 2

    def build(self, parameters: Iterable[Tensor]) -> Optimizer:
        from torch import optim

        return optim.Adamax(list(parameters), **asdict(self))


OPTIMIZER = Adamax
