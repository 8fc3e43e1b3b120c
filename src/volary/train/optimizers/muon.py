"""Muon: matrices move along orthogonal updates (Jordan et al. 2024; Liu et al. 2025, arXiv:2502.16982)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, ClassVar, Literal

from volary.session.checks import require
from volary.train.optimizers._base import check_usual

if TYPE_CHECKING:
    from torch import Tensor
    from torch.optim import Optimizer


@dataclass(frozen=True, kw_only=True)
class Muon:
    """The optimiser torch.optim.Muon for parameters with two dimensions, and torch.optim.AdamW for all others.

    Both have the same learning rate, which `match_rms_adamw` is made for.
    """

    elementwise: ClassVar[bool] = False

    lr: float = 0.001  # learning rate
    weight_decay: float = 0.1  # share of the learning rate by which parameters shrink each step
    momentum: float = 0.95  # share of the past gradients that is carried over
    nesterov: bool = True  # look ahead along the momentum
    ns_steps: int = 5  # Newton-Schulz iterations that make an update orthogonal
    adjust_lr_fn: Literal["match_rms_adamw", "original"] = "match_rms_adamw"  # the rate by a matrix's shape
    betas: tuple[float, float] = (0.9, 0.999)  # AdamW's: how much of the past the mean and the mean square keep

    def __post_init__(self) -> None:
        check_usual(self, "lr", "betas", "momentum", "weight_decay")
        require(1 <= self.ns_steps < 100, "ns_steps", self.ns_steps, "from 1 to 99")

    @property
    def kept(self) -> int:
        return 1  # of a matrix, as most values are

    def build(self, parameters: Iterable[Tensor]) -> Optimizer:
        from volary.train.update.rules.matrices_apart import MatricesApart

        return MatricesApart(parameters, **asdict(self))


OPTIMIZER = Muon
