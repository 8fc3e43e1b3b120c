"""A residual network: a stem, four stages of residual blocks, global average, one fully connected layer."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable

from torch import nn

from volary.network.blocks.convolution import conv_bn_relu
from volary.network.blocks.fill import he_normal, uniform_by_fan_in
from volary.network.blocks.residual import Residual
from volary.network.images import image_shape

Block = Callable[[int, int, int], tuple[Residual, int]]
WIDTHS = (64, 128, 256, 512)


def resnet(
    block: Block, depths: tuple[int, int, int, int], stem: str, input_shape: tuple[int, ...], classes: int
) -> nn.Sequential:
    """depths: blocks per stage. stem: imagenet, cifar, or auto, which is cifar up to 64 x 64 pixels."""
    small = stem == "cifar" or (stem == "auto" and max(input_shape[1:], default=0) <= 64)
    channels, _, _ = image_shape("resnet", input_shape, smallest=8 if small else 32)
    layers: OrderedDict[str, nn.Module] = OrderedDict(stem=cifar_stem(channels) if small else imagenet_stem(channels))
    channels = WIDTHS[0]
    for number, (width, depth) in enumerate(zip(WIDTHS, depths, strict=True), start=1):
        layers[f"stage{number}"], channels = stage(block, channels, width, depth, stride=1 if number == 1 else 2)
    layers |= OrderedDict(pool=nn.AdaptiveAvgPool2d(1), flatten=nn.Flatten(), fc=nn.Linear(channels, classes))
    network = nn.Sequential(layers)
    he_normal(network)
    uniform_by_fan_in(network)
    return network


def imagenet_stem(channels: int) -> nn.Module:
    """7 x 7 with stride 2 and max pooling: a quarter of the height and width."""
    return nn.Sequential(conv_bn_relu(channels, 64, 7, stride=2, padding=3), nn.MaxPool2d(3, stride=2, padding=1))


def cifar_stem(channels: int) -> nn.Module:
    """3 x 3 and nothing else: all pixels stay (He et al. 2016, section 4.2)."""
    return conv_bn_relu(channels, 64, 3, padding=1)


def stage(block: Block, channels: int, width: int, depth: int, stride: int) -> tuple[nn.Sequential, int]:
    """`depth` blocks, the first with a stride; and the channels that the last one gives."""
    blocks: list[nn.Module] = []
    for number in range(depth):
        made, channels = block(channels, width, stride if number == 0 else 1)
        blocks.append(made)
    return nn.Sequential(*blocks), channels
