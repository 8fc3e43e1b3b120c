"""Adam with weight decay apart from the gradient (Loshchilov & Hutter 2019, arXiv:1711.05101)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, ClassVar

from volary.train.optimizers._base import check_usual, fused

if TYPE_CHECKING:
    from torch import Tensor
    from torch.optim import Optimizer


@dataclass(frozen=True, kw_only=True)
class AdamW:
    """The optimiser torch.optim.AdamW, with its defaults."""

    elementwise: ClassVar[bool] = True

    lr: float = 0.001  # learning rate
    betas: tuple[float, float] = (0.9, 0.999)  # how much of the past the mean and the mean square keep
    eps: float = 1e-8  # added to the root of the mean square, against division by zero
    weight_decay: float = 0.01  # share of the learning rate by which parameters shrink each step
    amsgrad: bool = False  # divide by the largest mean square so far (Reddi et al. 2018)

    def __post_init__(self) -> None:
        check_usual(self, "lr", "betas", "eps", "weight_decay")

    @property
    def kept(self) -> int:
        return 2 + self.amsgrad

    def build(self, parameters: Iterable[Tensor]) -> Optimizer:
        from torch import optim

        own = list(parameters)
        return optim.AdamW(own, **asdict(self), **fused(own))


OPTIMIZER = AdamW
