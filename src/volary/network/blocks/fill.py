"""First values of weights and biases, as the publications have them."""

from __future__ import annotations

import math

from torch import nn
from torch.nn import init

WEIGHTED = (nn.Conv2d, nn.Linear)


def caffe_xavier(module: nn.Module, bias: float = 0.0) -> None:
    """Caffe's `xavier` filler: uniform with variance 1 / fan_in; biases constant."""
    for layer in module.modules():
        if isinstance(layer, WEIGHTED):
            init.kaiming_uniform_(layer.weight, nonlinearity="linear")
            fill_bias(layer, bias)


def he_normal(module: nn.Module) -> None:
    """Convolutions normal with variance 2 / fan_out (He et al. 2015, arXiv:1502.01852)."""
    for layer in module.modules():
        if isinstance(layer, nn.Conv2d):
            init.kaiming_normal_(layer.weight, mode="fan_out", nonlinearity="relu")
            fill_bias(layer, 0)


def uniform_by_fan_in(module: nn.Module) -> None:
    """Fully connected layers uniform in plus or minus 1 / sqrt(fan_in), biases zero."""
    for layer in module.modules():
        if isinstance(layer, nn.Linear):
            bound = 1 / math.sqrt(layer.in_features)
            init.uniform_(layer.weight, -bound, bound)
            fill_bias(layer, 0)


def truncated_normal(module: nn.Module, std: float) -> None:
    """Normal with `std`, cut at plus or minus 2; biases zero."""
    for layer in module.modules():
        if isinstance(layer, WEIGHTED):
            init.trunc_normal_(layer.weight, std=std, a=-2, b=2)
            fill_bias(layer, 0)


def gaussian(layer: nn.Module, std: float, bias: float = 0.0) -> None:
    """One layer: weights normal with `std`, the bias constant."""
    assert isinstance(layer, WEIGHTED)
    init.normal_(layer.weight, std=std)
    fill_bias(layer, bias)


def fill_bias(layer: nn.Conv2d | nn.Linear, value: float) -> None:
    """A constant bias, where the layer has one."""
    if layer.bias is not None:
        init.constant_(layer.bias, value)
