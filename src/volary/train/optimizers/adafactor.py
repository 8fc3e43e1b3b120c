"""Adafactor: the mean square by rows and columns alone (Shazeer & Stern 2018, arXiv:1804.04235)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, ClassVar

from volary.session.checks import require
from volary.train.optimizers._base import NON_NEGATIVE, check_usual

if TYPE_CHECKING:
    from torch import Tensor
    from torch.optim import Optimizer


@dataclass(frozen=True, kw_only=True)
class Adafactor:
    """The optimiser torch.optim.Adafactor, with its defaults; of a matrix it keeps as much as a row and a column."""

    elementwise: ClassVar[bool] = False

    lr: float = 0.01  # learning rate, times the root mean square of the parameter
    beta2_decay: float = -0.8  # power of the step by which the mean square forgets; below 0
    eps: tuple[float | None, float] = (
        None,
        0.001,
    )  # added to the square (none: the type's), and least root mean square
    d: float = 1.0  # largest root mean square of an update before the learning rate
    weight_decay: float = 0.0  # share of the learning rate by which parameters shrink each step

    def __post_init__(self) -> None:
        check_usual(self, "lr", "weight_decay")
        require(self.beta2_decay <= 0, "beta2_decay", self.beta2_decay, "0 or less")
        require(all(one is None or one >= 0 for one in self.eps), "eps", list(self.eps), f"each {NON_NEGATIVE}")
        require(self.d >= 1, "d", self.d, "1 or more")

    @property
    def kept(self) -> int:
        return 0

    def build(self, parameters: Iterable[Tensor]) -> Optimizer:
        from torch import optim

        return optim.Adafactor(list(parameters), **asdict(self))


OPTIMIZER = Adafactor
