"""Rules whose rate is by parameter: its norm over that of its update, the trust ratio (You et al. 2017, 2020)."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor

from volary.train.update.rules.by_group import ByGroup


class _ByParameter(ByGroup):
    """An optimiser that updates one whole parameter after the other."""

    def _update_group(self, values: list[Tensor], gradients: list[Tensor], group: dict[str, Any]) -> None:
        for one, gradient in zip(values, gradients, strict=True):
            self._update(one, gradient, group, self.state[one])

    @abstractmethod
    def _update(self, values: Tensor, gradient: Tensor, group: dict[str, Any], state: dict[str, Any]) -> None:
        """Update the values of one parameter. state: what is remembered of it, at first nothing."""


class LarsRule(_ByParameter):
    """LARS (You, Gitman & Ginsburg 2017, algorithm 1), with g of parameter w and the weight decay b:

    v becomes momentum * v + lr * trust * |w| / (|g| + b * |w|) * (g + b * w), and w becomes w - v. If |w| or |g| is 0,
    trust and the ratio are left out: a bias that begins at 0 would never move.
    """

    def __init__(
        self, parameters: Iterable[Tensor], lr: float, momentum: float, weight_decay: float, trust: float
    ) -> None:
        """parameters: of any shapes, each whole."""
        defaults = {"lr": lr, "momentum": momentum, "weight_decay": weight_decay, "trust": trust}
        super().__init__(parameters, defaults)

    def _update(self, values: Tensor, gradient: Tensor, group: dict[str, Any], state: dict[str, Any]) -> None:
        decay, momentum = group["weight_decay"], group["momentum"]
        size, slope = _norm(values), _norm(gradient)
        ratio = torch.where((size > 0) & (slope > 0), group["trust"] * size / (slope + decay * size), 1.0)
        change = gradient.add(values, alpha=decay).mul_((ratio * group["lr"]).to(values.dtype))
        if momentum:
            if "momentum_buffer" not in state:
                state["momentum_buffer"] = torch.zeros_like(values)
            change = state["momentum_buffer"].mul_(momentum).add_(change)
        values.sub_(change)


class LambRule(_ByParameter):
    """LAMB (You et al. 2020, algorithm 2), with Adam's r = m / (sqrt(v) + eps), both corrected for their beginning:

    u = r + weight_decay * w, and w becomes w - lr * |w| / |u| * u. If one of the norms is 0, the ratio is 1.
    """

    def __init__(
        self, parameters: Iterable[Tensor], lr: float, betas: tuple[float, float], eps: float, weight_decay: float
    ) -> None:
        """parameters: of any shapes, each whole."""
        super().__init__(parameters, {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay})

    def _update(self, values: Tensor, gradient: Tensor, group: dict[str, Any], state: dict[str, Any]) -> None:
        if not state:
            state["step"] = torch.zeros(())
            state["exp_avg"], state["exp_avg_sq"] = torch.zeros_like(values), torch.zeros_like(values)
        state["step"] += 1
        (first, second), step = group["betas"], float(state["step"])
        mean = state["exp_avg"].lerp_(gradient, 1 - first)
        square = state["exp_avg_sq"].mul_(second).addcmul_(gradient, gradient, value=1 - second)
        change = (mean / (1 - first**step)).div_((square / (1 - second**step)).sqrt_().add_(group["eps"]))
        change.add_(values, alpha=group["weight_decay"])
        size, length = _norm(values), _norm(change)
        ratio = torch.where((size > 0) & (length > 0), size / length, 1.0)
        values.sub_(change.mul_((ratio * group["lr"]).to(values.dtype)))


def _norm(values: Tensor) -> Tensor:
    norm: Tensor = torch.linalg.vector_norm(values, dtype=torch.promote_types(values.dtype, torch.float32))
    return norm
