"""Functions of each value on its own; each may be written by its name, as `relu`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from volary.errors import SettingError
from volary.network.layers._base import LayerKind, Shape

if TYPE_CHECKING:
    from torch import nn


@dataclass(frozen=True, kw_only=True)
class ActivationLayer(LayerKind):
    """The shape of what it is given stays."""

    function: Literal[
        "relu", "relu6", "leaky_relu", "elu", "selu", "gelu", "silu", "sigmoid", "tanh", "softplus", "abs"
    ]  # softplus is log(1 + exp(x)), which Caffe calls BNLL; silu is swish
    slope: float | None = None  # of negative values: of leaky_relu (null: 0.01), and what elu tends to (null: 1)

    def check(self) -> None:
        if self.slope is not None and self.function not in ("leaky_relu", "elu"):
            raise SettingError(f"slope is {self.slope}, which {self.function} has none of; accepted: null")

    def shapes(self, given: tuple[Shape, ...]) -> tuple[Shape, ...]:
        return (given[0],)

    def build(self, given: tuple[Shape, ...]) -> nn.Module:
        from torch import nn

        from volary.network.operations.values import Absolute

        if self.function == "leaky_relu":
            return nn.LeakyReLU(0.01 if self.slope is None else self.slope)
        if self.function == "elu":
            return nn.ELU(1.0 if self.slope is None else self.slope)
        kinds: dict[str, type[nn.Module]] = {
            "relu": nn.ReLU,
            "relu6": nn.ReLU6,
            "selu": nn.SELU,
            "gelu": nn.GELU,
            "silu": nn.SiLU,
            "sigmoid": nn.Sigmoid,
            "tanh": nn.Tanh,
            "softplus": nn.Softplus,
            "abs": Absolute,
        }
        return kinds[self.function]()


LAYER = ActivationLayer
