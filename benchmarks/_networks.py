"""The networks of exchange.py (many parameters in few large layers, or many small ones) and of accuracy.py."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

CONVOLUTIONS = (64, 128, 256)
HIDDEN = 4096
STAGES = (64, 128, 256, 512)
UNITS = 512
VGG = ((64,), (128,), (256, 256), (512, 512))
DILATIONS = tuple(2**power for _ in range(2) for power in range(10))
CHANNELS, SKIPPED = 128, 256
MIXERS, MIXED, PATCH = 8, 512, 4
GAINS = 1000
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


def dilated(classes: int) -> nn.Module:
    """Tokens (batch, time) to (batch, time, classes): 20 blocks of gated dilated convolutions, 84 tensors, 9.6 MB."""
    return _Dilated(classes)


def mixer(classes: int) -> nn.Module:
    """Images (batch, 3, 32, 32) to (batch, classes): an MLP-mixer (Tolstikhin et al. 2021) of 8 blocks, 68 MB."""
    patches = (32 // PATCH) ** 2
    blocks = [
        block for _ in range(MIXERS) for block in (_Mixed(patches, 256, of_patches=True), _Mixed(MIXED, 4 * MIXED))
    ]
    embedding = [nn.Conv2d(3, MIXED, PATCH, PATCH), nn.Flatten(2), _Transposed()]
    return nn.Sequential(
        *embedding, *blocks, nn.LayerNorm(MIXED), _Transposed(), nn.AdaptiveAvgPool1d(1), nn.Flatten(),
        nn.Linear(MIXED, classes),
    )  # fmt: skip


def many_gains(input_shape: tuple[int, ...], classes: int) -> nn.Module:
    """Values (batch, 256) to (batch, classes) through 1,000 factors of each value: 1,000 tensors of 1 KB."""
    (values,) = input_shape
    return nn.Sequential(*[_Gain(values) for _ in range(GAINS)], nn.Linear(values, classes))


def square_perceptron(width: int) -> nn.Module:
    """Two fully connected layers: values (batch, width) to (batch, width)."""
    return nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, width))


def perceptron(input_shape: tuple[int, ...], classes: int) -> nn.Module:
    """Values of any shape to (batch, classes), through one hidden layer."""
    inputs = math.prod(input_shape)
    return nn.Sequential(nn.Flatten(), nn.Linear(inputs, UNITS), nn.ReLU(), nn.Linear(UNITS, classes))


class _Dilated(nn.Module):
    """Blocks of a causal convolution whose taps lie ever further apart, gated (WaveNet, van den Oord et al. 2016)."""

    def __init__(self, classes: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(classes, CHANNELS)
        self.blocks = nn.ModuleList([_GatedBlock(dilation) for dilation in DILATIONS])
        self.hidden = nn.Conv1d(SKIPPED, SKIPPED, 1, bias=False)
        self.output = nn.Conv1d(SKIPPED, classes, 1)

    def forward(self, tokens: Tensor) -> Tensor:
        """tokens: (batch, time)."""
        x, skips = self.embedding(tokens).transpose(1, 2), torch.zeros(())
        for block in self.blocks:
            x, skip = block(x)
            skips = skips + skip
        scores: Tensor = self.output(nn.functional.relu(self.hidden(nn.functional.relu(skips)))).transpose(1, 2)
        return scores


class _GatedBlock(nn.Module):
    """Three 1-d convolutions: of two dilated taps to filter and gate, then to the next block and to the output."""

    def __init__(self, dilation: int) -> None:
        super().__init__()
        self.taps = nn.Conv1d(CHANNELS, 2 * CHANNELS, 2, dilation=dilation)
        self.onward = nn.Conv1d(CHANNELS, CHANNELS, 1, bias=False)
        self.skip = nn.Conv1d(CHANNELS, SKIPPED, 1, bias=False)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """x: (batch, channels, time)."""
        values, gate = self.taps(nn.functional.pad(x, (self.taps.dilation[0], 0))).chunk(2, 1)
        y = torch.tanh(values) * torch.sigmoid(gate)
        return x + self.onward(y), self.skip(y)


class _Mixed(nn.Module):
    """A perceptron beside a shortcut, over the last dimension of (batch, patches, width), or over the patches."""

    def __init__(self, features: int, hidden: int, *, of_patches: bool = False) -> None:
        super().__init__()
        self.norm, self.of_patches = nn.LayerNorm(MIXED), of_patches
        self.body = nn.Sequential(nn.Linear(features, hidden), nn.GELU(), nn.Linear(hidden, features))

    def forward(self, x: Tensor) -> Tensor:
        """x: (batch, patches, width)."""
        y = self.norm(x)
        mixed: Tensor = self.body(y.transpose(1, 2)).transpose(1, 2) if self.of_patches else self.body(y)
        return x + mixed


class _Transposed(nn.Module):
    """The last two dimensions change places."""

    def forward(self, x: Tensor) -> Tensor:
        """x: (batch, rows, columns)."""
        return x.transpose(1, 2)


class _Gain(nn.Module):
    """A factor for each value."""

    def __init__(self, values: int) -> None:
        super().__init__()
        self.gain = nn.Parameter(torch.ones(values))

    def forward(self, x: Tensor) -> Tensor:
        """x: (batch, values)."""
        return x * self.gain


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
