"""Resilient propagation: steps by the signs of gradients alone (Riedmiller & Braun 1993)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, ClassVar

from volary.session.checks import require
from volary.train.optimizers._base import check_usual

if TYPE_CHECKING:
    from torch import Tensor
    from torch.optim import Optimizer


@dataclass(frozen=True, kw_only=True)
class Rprop:
    """The optimiser torch.optim.Rprop, with its defaults; for gradients of all samples, not of small batches.

    The learning rate is the length of the first step; each value's later ones grow and shrink by themselves, so it
    takes no schedule.
    """

    elementwise: ClassVar[bool] = True
    first_rate_only: ClassVar[bool] = True

    lr: float = 0.01  # length of the first step
    etas: tuple[float, float] = (0.5, 1.2)  # a step's factors after the sign has changed, and while it stays
    step_sizes: tuple[float, float] = (1e-6, 50.0)  # the shortest and the longest step

    def __post_init__(self) -> None:
        check_usual(self, "lr")
        smaller, larger = self.etas
        require(0 < smaller < 1 < larger, "etas", list(self.etas), "one from above 0 to below 1, and one above 1")
        shortest, longest = self.step_sizes
        require(0 < shortest <= longest, "step_sizes", list(self.step_sizes), "two above 0, the smaller first")

    @property
    def kept(self) -> int:
        return 2

    def build(self, parameters: Iterable[Tensor]) -> Optimizer:
        from torch import optim

        return optim.Rprop(list(parameters), **asdict(self))


OPTIMIZER = Rprop
