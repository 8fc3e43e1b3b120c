"""L-BFGS: directions by the last gradients, as Newton's (Liu & Nocedal 1989). Guide: docs/lbfgs.md"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal

from volary.session.checks import require
from volary.train.optimizers._base import NON_NEGATIVE, check_usual

if TYPE_CHECKING:
    from torch import Tensor
    from torch.optim import Optimizer


@dataclass(frozen=True, kw_only=True)
class Lbfgs:
    """The optimiser torch.optim.LBFGS with one iteration a step, and so one loss; for gradients of all samples.

    It looks at all parameters together; with exchange=server vectors stay on servers, and a coordinator combines them
    (Sandblaster: Dean et al., NIPS 2012).
    """

    elementwise: ClassVar[bool] = False
    together: ClassVar[bool] = True
    by_vectors: ClassVar[bool] = True  # servers have it as sums of vectors and inner products of these

    lr: float = (
        1.0  # learning rate; of the first step divided by the sum of the gradient's magnitudes, if that is over 1
    )
    history_size: int = 100  # steps whose gradients are remembered
    tolerance_grad: float = 1e-7  # largest value of a gradient at which nothing is changed any more
    line_search: Literal["none", "strong_wolfe"] = "none"  # with it each loss and gradient is a step of the run

    def __post_init__(self) -> None:
        check_usual(self, "lr")
        require(self.history_size >= 1, "history_size", self.history_size, "a whole number, 1 or more")
        require(self.tolerance_grad >= 0, "tolerance_grad", self.tolerance_grad, NON_NEGATIVE)

    @property
    def kept(self) -> int:
        return 2 * self.history_size + 2

    def build(self, parameters: Iterable[Tensor]) -> Optimizer:
        from volary.train.update.rules.one_iteration import OneIteration

        return OneIteration(parameters, lr=self.lr, history_size=self.history_size, tolerance_grad=self.tolerance_grad)


OPTIMIZER = Lbfgs
