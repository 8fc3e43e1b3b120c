"""The networks of exchange.py (many parameters in few large layers, or many small ones) and of accuracy.py."""

from __future__ import annotations

import math

from torch import Tensor, nn

CONVOLUTIONS = (64, 128, 256)
HIDDEN = 4096
STAGES = (64, 128, 256, 512)
UNITS = 512
VGG = ((64,), (128,), (256, 256), (512, 512))
SEPARABLE = ((64, 1), (128, 2), (128, 1), (256, 2), (256, 1), (512, 2), *[(512, 1)] * 5, (1024, 2), (1024, 1))


def alexnet_like(classes: int) -> nn.Module:
    """Images (batch, 3, 32, 32) to (batch, classes): 34 million parameters, nearly all in two linear layers."""
    layers: list[nn.Module] = []
    channels = 3
    for wider in CONVOLUTIONS:
        layers += [nn.Conv2d(channels, wider, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)]
        channels = wider
    layers.append(nn.Flatten())
    for features in (channels * 4 * 4, HIDDEN):
        layers += [nn.Linear(features, HIDDEN), nn.ReLU()]
    return nn.Sequential(*layers, nn.Linear(HIDDEN, classes))


def resnet_widths(classes: int) -> nn.Module:
    """Images (batch, 3, 32, 32) to (batch, classes): depth and widths of ResNet-18, 11 million parameters."""
    layers: list[nn.Module] = [*_convolved(3, STAGES[0], 1), nn.ReLU()]
    channels = STAGES[0]
    for wider in STAGES:
        layers += [_Residual(channels, wider), _Residual(wider, wider)]
        channels = wider
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, classes))


def vgg_like(classes: int) -> nn.Module:
    """Images (batch, 3, 32, 32) to (batch, classes): 13 million parameters, two thirds in two linear layers."""
    layers: list[nn.Module] = []
    channels = 3
    for stage in VGG:
        for wider in stage:
            layers += [nn.Conv2d(channels, wider, 3, padding=1), nn.ReLU()]
            channels = wider
        layers.append(nn.MaxPool2d(2))
    hidden = channels * 2 * 2
    layers += [nn.Flatten(), nn.Linear(hidden, hidden), nn.ReLU(), nn.Linear(hidden, hidden), nn.ReLU()]
    return nn.Sequential(*layers, nn.Linear(hidden, classes))


def mobilenet_like(classes: int) -> nn.Module:
    """Images (batch, 3, 32, 32) to (batch, classes): 3.2 million parameters, nearly all in 1 x 1 convolutions."""
    layers: list[nn.Module] = [*_convolved(3, 32, 1), nn.ReLU()]
    channels = 32
    for wider, stride in SEPARABLE:
        layers += [
            nn.Conv2d(channels, channels, 3, stride, padding=1, groups=channels, bias=False),
            nn.BatchNorm2d(channels),
            nn.ReLU(),
            nn.Conv2d(channels, wider, 1, bias=False),
            nn.BatchNorm2d(wider),
            nn.ReLU(),
        ]
        channels = wider
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, classes))


def perceptron(input_shape: tuple[int, ...], classes: int) -> nn.Module:
    """Values of any shape to (batch, classes), through one hidden layer."""
    inputs = math.prod(input_shape)
    return nn.Sequential(nn.Flatten(), nn.Linear(inputs, UNITS), nn.ReLU(), nn.Linear(UNITS, classes))


class _Residual(nn.Module):
    """Two convolutions beside a shortcut; where the width grows, the image halves (He et al. 2016)."""

    def __init__(self, channels: int, wider: int) -> None:
        super().__init__()
        stride = 1 if channels == wider else 2
        self.body = nn.Sequential(*_convolved(channels, wider, stride), nn.ReLU(), *_convolved(wider, wider, 1))
        self.shortcut = nn.Identity() if channels == wider else nn.Conv2d(channels, wider, 1, stride, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """x: (batch, channels, height, width)."""
        return nn.functional.relu(self.shortcut(x) + self.body(x))


def _convolved(channels: int, wider: int, stride: int) -> list[nn.Module]:
    return [nn.Conv2d(channels, wider, 3, stride, padding=1, bias=False), nn.BatchNorm2d(wider)]
